// What began and what ended between two times.
import { html, useEffect, useState } from "./dom.js";
import { useAnswer } from "./api.js";
import { FactText, Problem } from "./answers.js";
import { Combobox } from "./combobox.js";
import { Journal } from "./journal.js";
import { Link, asked, go } from "./route.js";

const TOP = 200; // facts that began, and as many that ended

export function ChangesView({ route, axis }) {
  const since = route.since || axis.label(Math.max(0, axis.count - 2));
  const until = route.until || axis.last;
  const entity = route.entity ?? "";
  const { answer, error, busy } = useAnswer("/v1/changes", { since, until, entity, top: TOP });
  return html`
    <${Form} since=${since} until=${until} entity=${entity} />
    <${Problem} error=${error} />
    <section class="changes" aria-busy=${String(busy)}>
      ${
        answer &&
        html`
        <${Column} title="Began" sign="+" facts=${answer.began} time="start" />
        <${Column} title="Ended" sign="−" facts=${answer.ended} time="end" />`
      }
    </section>
    ${answer?.left_out > 0 && html`<p class="quiet">${answer.left_out.toLocaleString("en")} more are not shown.</p>`}
    <${Journal} />`;
}

function Form(given) {
  const [draft, setDraft] = useState(given);
  useEffect(() => setDraft(given), [given.since, given.until, given.entity]);
  const submit = (event) => {
    event.preventDefault();
    go({ view: "changes", ...draft });
  };
  const box = (name, label, kind, placeholder) => html`<${Combobox} name=${name} label=${label} kind=${kind}
    value=${draft[name]} placeholder=${placeholder}
    onChange=${(text) => setDraft((last) => ({ ...last, [name]: text }))} />`;
  return html`<form class="ask" role="search" aria-label="Choose two times" onSubmit=${submit}>
    ${box("since", "After", "time", "")}
    ${box("until", "Until", "time", "the last time")}
    ${box("entity", "Around", "entity", "everything")}
    <button class="primary" type="submit">What changed?</button>
  </form>`;
}

function Column({ title, sign, facts, time }) {
  return html`<section class="facts">
    <h2>${title} <small class="number">${facts.length === TOP ? `latest ${TOP}` : facts.length}</small></h2>
    ${
      facts.length
        ? html`<ul>${facts.map(
            (each) => html`<li key=${JSON.stringify(each)}>
      <span class=${`sign ${time}`} aria-hidden="true">${sign}</span>
      <${Link} to=${asked({ ...each, time: each[time] })}><${FactText} fact=${each} /><//>
      <span class="number quiet">${each[time]}</span>
    </li>`,
          )}</ul>`
        : html`<p class="quiet">Nothing ${title.toLowerCase()} between these times.</p>`
    }
  </section>`;
}
