// What was remembered and forgotten since the memory was learned, the newest first.
import { html } from "./dom.js";
import { useAnswer } from "./api.js";
import { FactText, Problem } from "./answers.js";
import { Link, asked } from "./route.js";

const LATEST = 200; // changes that are asked for
const EVENTS = 20; // events that are listed
const PER_EVENT = 5; // changes of an event that are listed

// A changed fact and when it holds; of an erased entity its name.
export function ChangeText({ change }) {
  if (change.change === "erased") return html`<span class="fact">${change.subject}</span>`;
  const { start, end } = change;
  const span = start === null ? "" : end === null ? `since ${start}` : start === end ? start : `${start} – ${end}`;
  return html`<${Link} to=${asked({ ...change, time: start ?? undefined })}><${FactText} fact=${change} /><//>${" "}
    <span class="number quiet">${span}</span>`;
}

// Return the changes by event, the newest first.
function events(changes) {
  const found = new Map();
  for (const each of changes) found.set(each.event, [...(found.get(each.event) ?? []), each]);
  return [...found.values()].reverse().slice(0, EVENTS);
}

// Without `onUndo` nothing can be taken back.
export function Journal({ version = 0, onUndo }) {
  const { answer, error } = useAnswer("/v1/journal", { top: LATEST }, version);
  if (!answer?.changes.length) return html`<${Problem} error=${error} />`;
  return html`<section class="facts journal">
    <h2>Remembered and forgotten</h2>
    <ul>
      ${events(answer.changes).map(
        (changes) => html`<li key=${changes[0].event}>
        <span class=${`sign ${changes[0].change}`}>
          <span aria-hidden="true">${changes[0].change === "added" ? "+" : "−"}</span>
          <span class="hidden">${changes[0].change}</span>
        </span>
        <div>${changes.slice(0, PER_EVENT).map(
          (each) => html`<div key=${JSON.stringify(each)}>
            <${ChangeText} change=${each} /></div>`,
        )}
          ${changes.length > PER_EVENT && html`<span class="quiet">and ${changes.length - PER_EVENT} more</span>`}</div>
        <time class="number quiet" datetime=${changes[0].known_at}>${moment(changes[0].known_at)}</time>
        ${
          onUndo &&
          changes.every((each) => each.change !== "erased") &&
          html`<button type="button" class="plain"
          onClick=${() => onUndo(changes)}>Undo</button>`
        }
      </li>`,
      )}
    </ul>
  </section>`;
}

function moment(text) {
  return text ? `${text.slice(0, 10)} ${text.slice(11, 19)}` : "";
}
