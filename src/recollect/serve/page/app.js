// The page: header with views, the view of the URL, and what it needs of the memory.
import { html, render, useEffect, useMemo, useState } from "./dom.js";
import { setToken, useAnswer } from "./api.js";
import { AboutView } from "./about.js";
import { Problem } from "./answers.js";
import { AskView } from "./ask.js";
import { ChangesView } from "./changes.js";
import { Link, useRoute } from "./route.js";
import { TeachView } from "./teach.js";
import { ThenView } from "./then.js";
import { Axis } from "./times.js";

const VIEWS = {
  ask: ["Ask", AskView],
  then: ["Then", ThenView],
  changes: ["Changes", ChangesView],
  teach: ["Teach", TeachView],
  about: ["About", AboutView],
};

function App() {
  const route = useRoute();
  const [version, setVersion] = useState(0);
  const { answer: about, error } = useAnswer("/v1/memory", {}, version);
  const axis = useMemo(() => about?.times && new Axis(about.times), [about]);
  const left = [about?.read_only && "teach", about && !about.times && "changes"]; // a semantic memory has no times
  const shown = Object.keys(VIEWS).filter((key) => !left.includes(key));
  const name = shown.includes(route.view) ? route.view : "ask";
  const [title, View] = VIEWS[name];
  useEffect(() => {
    const parts = [route.who, route.what, route.whom, route.entity, route.when ?? route.at].filter(Boolean);
    document.title = [parts.join(" · ") || title, about?.name, "recollect"].filter(Boolean).join(" – ");
  }, [route, about]);
  return html`
    <a class="skip" href="#main">Skip to the content</a>
    <header class="top">
      <${Link} class="brand" to=${{}} aria-label="recollect, start"><span aria-hidden="true">recollect</span><//>
      ${about && html`<span class="memory">${about.name}${about.as_of && `, as of ${about.as_of}`}</span>`}
      <nav aria-label="Views">
        ${shown.map(
          (key) => html`<${Link} key=${key} to=${key === "ask" ? {} : { view: key }}
          aria-current=${key === name ? "page" : undefined}>${VIEWS[key][0]}<//>`,
        )}
      </nav>
      <${ThemeSwitch} />
    </header>
    <main id="main" tabindex="-1">
      <h1 class="hidden">${title}</h1>
      ${
        error?.status === 401
          ? html`<${TokenForm} onDone=${() => setVersion(version + 1)} />`
          : html`<${Problem} error=${error} />`
      }
      ${
        about &&
        html`<${View} route=${route} about=${about} axis=${axis}
        onChanged=${() => setVersion((last) => last + 1)} />`
      }
    </main>`;
}

// A memory that others may reach asks for its token.
function TokenForm({ onDone }) {
  const submit = (event) => {
    event.preventDefault();
    setToken(new FormData(event.target).get("token").trim());
    onDone();
  };
  return html`<form class="ask one" onSubmit=${submit}>
    <div class="box"><label for="token">Token of this memory</label>
      <div class="field"><input id="token" name="token" type="password" autocomplete="off" required /></div></div>
    <button class="primary" type="submit">Open</button>
  </form>`;
}

function ThemeSwitch() {
  const isDark = () =>
    document.documentElement.dataset.theme
      ? document.documentElement.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
  const [dark, setDark] = useState(isDark);
  const onClick = () => {
    const chosen = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = chosen;
    try {
      localStorage.setItem("recollect.theme", chosen);
    } catch {
      // storage may be forbidden; the choice lasts until the page is left
    }
    setDark(chosen === "dark");
  };
  return html`<button type="button" class="plain theme" aria-pressed=${String(dark)} onClick=${onClick}>Dark</button>`;
}

render(html`<${App} />`, document.getElementById("app"));
