// Answers as rows: the label, how likely it is, whether it is stored or predicted, and why.
import { html, useId, useState } from "./dom.js";
import { useAnswer } from "./api.js";
import { Link, asked } from "./route.js";

const REASONS = 4;
const LEAST = 0.001; // probability below which predicted answers are folded away
const SHOWN = 3; // answers that are shown, whatever their probability
const PROPOSAL = /^Unknown \w+ ['"](.*)['"]; did you mean (.*)\?$/;

// Return a probability as a percentage that never reads as certain or impossible when it is neither.
export function percent(value) {
  if (value === 1) return "100 %";
  if (value > 0.999) return "> 99.9 %";
  if (value > 0 && value < 0.001) return "< 0.1 %";
  return `${(100 * value).toFixed(value < 0.0995 || value > 0.9895 ? 1 : 0)} %`;
}

export function Percent({ value }) {
  return html`<span class="number">${percent(value)}</span>`;
}

export function Badge({ status }) {
  return html`<span class=${`badge ${status}`}>${status}</span>`;
}

// What went wrong. Labels that the service proposes instead are buttons: `correct` puts one in place of what was given.
export function Problem({ error, correct }) {
  if (!error) return null;
  const [, given, proposed] = (correct && error.message.match(PROPOSAL)) ?? [];
  const choices = proposed?.split(/(?<=['"]) or (?=['"])/).map((text) => text.slice(1, -1)) ?? [];
  return html`<div class="problem" role="alert"><p>${error.message}</p>
    ${choices.map(
      (label) => html`<button type="button" class="plain" key=${label}
      onClick=${() => correct(given, label)}>${label}</button> `,
    )}</div>`;
}

// The parts of a fact with quiet signs between them.
export function FactText({ fact }) {
  return html`<span class="fact">${fact.subject} <i>·</i> ${fact.predicate} <i>·</i> ${fact.object}</span>`;
}

// `open` is the slot that was asked for; null if answers are whole facts.
export function Answers({ answers, open, about }) {
  const [unfolded, setUnfolded] = useState(false);
  if (!answers.length) return null;
  const likely = answers.filter((each, i) => i < SHOWN || each.probability >= LEAST);
  const folded = answers.length - likely.length;
  return html`<ol class="answers">
    ${(unfolded ? answers : likely).map(
      (each) => html`<${Answer}
      key=${JSON.stringify(asked(each))} answer=${each} open=${open} about=${about} />`,
    )}
  </ol>
  ${
    folded > 0 &&
    !unfolded &&
    html`<button type="button" class="plain folded" onClick=${() => setUnfolded(true)}>
    ${folded} below ${percent(LEAST)}</button>`
  }`;
}

function Answer({ answer, open, about }) {
  const [expanded, setExpanded] = useState(false);
  const id = useId();
  const text = open ? answer[open] : html`<${FactText} fact=${answer} />`;
  return html`<li class=${answer.status}>
    <div class="row">
      <${Link} class="answer" to=${asked(answer)}>${text}<//>
      <span class="bar" aria-hidden="true"><svg viewBox="0 0 100 8" preserveAspectRatio="none">
        <rect width="100" height="8" class="track" /><rect width=${100 * answer.probability} height="8" class="fill" />
      </svg></span>
      <${Percent} value=${answer.probability} />
      <${Badge} status=${answer.status} />
      <button type="button" class="plain why" aria-expanded=${String(expanded)} aria-controls=${id}
        onClick=${() => setExpanded(!expanded)}>
        Why<span class="hidden"> ${open ? answer[open] : answer.subject}</span>
      </button>
    </div>
    <div id=${id} hidden=${!expanded}>${expanded && html`<${Why} answer=${answer} about=${about} />`}</div>
  </li>`;
}

// Asks for the reasons of an answer when they are shown.
function Why({ answer, about }) {
  const { subject, predicate, object, time } = answer;
  const found = useAnswer("/v1/why", { subject, predicate, object, time, explain: REASONS });
  return html`<div class="reasons" aria-busy=${String(found.busy)}>
    <${Problem} error=${found.error} />
    ${found.answer && html`<${Reasons} answer=${found.answer} about=${about} />`}
    <p class="links">
      ${about.times && html`<${Link} to=${asked({ subject, predicate, object })}>When?<//>`}
      <${Link} to=${{ view: "then", entity: subject, at: time }}>${subject} then<//>
      <${Link} to=${{ view: "then", entity: object, at: time }}>${object} then<//>
    </p>
  </div>`;
}

// The stored facts that speak for an answer, with their shares of the evidence.
export function Reasons({ answer }) {
  if (answer.status === "stored") return html`<p>The memory has this fact.</p>`;
  if (!answer.why) return html`<p>A model predicts it from all that it learned; it names no single facts.</p>`;
  const reasons = answer.why;
  const share = answer.model_share;
  return html`
    ${
      reasons.length
        ? html`<p>Stored facts that speak for it most, with their shares of the evidence:</p>
      <ul class="evidence">
        ${reasons.map(
          (each) => html`<li key=${JSON.stringify(asked(each))}>
          <span class="number">${percent(each.share)}</span>
          <${Link} to=${asked(each)}><${FactText} fact=${each} /><//>
          <span class="number quiet">${each.time}</span>
        </li>`,
        )}
      </ul>`
        : html`<p>No stored fact speaks for it in particular.</p>`
    }
    ${
      typeof share === "number" &&
      html`<p class="quiet">Of its lead over the mean candidate,${" "}
      <span class="number">${percent(Math.min(1, Math.max(0, share)))}</span> comes from the model,
      the rest from stored facts.</p>`
    }`;
}
