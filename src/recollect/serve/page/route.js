// The view and its parameters live in the query string, so that every view can be linked to and gone back to.
import { html, useEffect, useState } from "./dom.js";
import { query } from "./api.js";

const changed = new EventTarget();

export function read() {
  return Object.fromEntries(new URLSearchParams(location.search));
}

export function href(parameters) {
  const text = query(parameters);
  return text ? `/?${text}` : "/";
}

// Return the parameters of the page for a fact or a part of it.
export function asked({ subject, predicate, object, time }) {
  return { who: subject, what: predicate, whom: object, when: time };
}

// Show a view. With `replace`, the back button skips the one that was shown before.
export function go(parameters, { replace = false } = {}) {
  const url = href(parameters);
  if (url !== location.pathname + location.search) {
    history[replace ? "replaceState" : "pushState"](null, "", url);
  }
  changed.dispatchEvent(new Event("change"));
}

export function useRoute() {
  const [route, setRoute] = useState(read);
  useEffect(() => {
    const update = () => setRoute(read());
    addEventListener("popstate", update);
    changed.addEventListener("change", update);
    return () => {
      removeEventListener("popstate", update);
      changed.removeEventListener("change", update);
    };
  }, []);
  return route;
}

export function Link({ to, children, ...rest }) {
  const onClick = (event) => {
    if (event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(to);
  };
  return html`<a href=${href(to)} onClick=${onClick} ...${rest}>${children}</a>`;
}
