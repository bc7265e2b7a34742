// A text box that completes labels: the ARIA combobox pattern with a list, usable with the keyboard alone.
import { html, useEffect, useId, useRef, useState } from "./dom.js";
import { ask } from "./api.js";

const DELAY = 90; // milliseconds without a key before the service is asked
const SHOWN = 8; // labels of a list

// Show `value`; call `onChange` with every text that is typed or chosen.
export function Combobox({ name, label, kind, value, onChange, placeholder = "", hint = "" }) {
  const id = useId();
  const [open, setOpen] = useState(false);
  const [found, setFound] = useState([]);
  const [active, setActive] = useState(-1);
  const timer = useRef(0);
  const latest = useRef(0); // number of the last question; answers to others are dropped
  const input = useRef(null);

  useEffect(() => () => clearTimeout(timer.current), []);

  const close = () => {
    clearTimeout(timer.current);
    latest.current += 1;
    setOpen(false);
    setActive(-1);
  };
  const complete = (text, delay = DELAY) => {
    clearTimeout(timer.current);
    const number = (latest.current += 1);
    timer.current = setTimeout(async () => {
      const answer = await ask("/v1/labels", { kind, text, top: SHOWN }).catch(() => ({ labels: [] }));
      if (number !== latest.current) return;
      setFound(answer.labels);
      setActive(-1);
      setOpen(answer.labels.length > 0);
    }, delay);
  };
  const choose = (text) => {
    onChange(text);
    close();
    input.current.focus();
  };
  const move = (step) => {
    if (!open) return complete(value, 0);
    const next = active + step;
    return setActive(next >= found.length ? 0 : next < 0 ? found.length - 1 : next);
  };
  const onKeyDown = (event) => {
    const { key } = event;
    if (key === "ArrowDown" || key === "ArrowUp") {
      event.preventDefault();
      move(key === "ArrowDown" ? 1 : -1);
    } else if (key === "Enter" && open && active >= 0) {
      event.preventDefault();
      choose(found[active].label);
    } else if (key === "Enter") {
      close();
    } else if (key === "Tab" && open && active >= 0) {
      onChange(found[active].label);
      close();
    } else if (key === "Escape") {
      if (open) close();
      else if (value) onChange("");
      event.preventDefault();
    }
  };
  return html`<div class="box">
    <label for=${id}>${label}</label>
    <div class="field">
      <input
        ref=${input} id=${id} name=${name} type="text" role="combobox" value=${value} placeholder=${placeholder}
        autocomplete="off" autocapitalize="off" spellcheck=${false} maxlength="2000"
        aria-autocomplete="list" aria-expanded=${String(open)} aria-controls=${`${id}-list`}
        aria-activedescendant=${active >= 0 ? `${id}-${active}` : undefined}
        aria-describedby=${hint ? `${id}-hint` : undefined}
        onInput=${(event) => {
          onChange(event.target.value);
          complete(event.target.value);
        }}
        onKeyDown=${onKeyDown} onBlur=${close} onClick=${() => !open && complete(value, 0)} />
      ${
        value &&
        html`<button type="button" class="clear" tabindex="-1" aria-label=${`Clear ${label.toLowerCase()}`}
        onClick=${() => choose("")}>×</button>`
      }
    </div>
    ${hint && html`<span class="hint" id=${`${id}-hint`}>${hint}</span>`}
    <ul role="listbox" id=${`${id}-list`} aria-label=${label} hidden=${!open}>
      ${found.map(
        (each, i) => html`<li
        key=${each.label} id=${`${id}-${i}`} role="option" aria-selected=${String(i === active)}
        onMouseDown=${(event) => event.preventDefault()} onClick=${() => choose(each.label)}>
          <span>${each.label}</span>${each.facts > 0 && html`<small>${each.facts.toLocaleString("en")}</small>`}
        </li>`,
      )}
    </ul>
  </div>`;
}
