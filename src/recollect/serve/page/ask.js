// The ask bar: four boxes, any of them open, and the answers to what they ask.
import { html, useEffect, useState } from "./dom.js";
import { useAnswer } from "./api.js";
import { Answers, Badge, Percent, Problem, Reasons } from "./answers.js";
import { Combobox } from "./combobox.js";
import { Link, asked, go } from "./route.js";
import { Timeline } from "./timeline.js";

// boxes by the name of their parameter: label, kind of the completion, slot of the service
export const BOXES = {
  who: ["Who", "entity", "subject"],
  what: ["What", "predicate", "predicate"],
  whom: ["Whom", "entity", "object"],
  when: ["When", "time", "time"],
};
const ANY = { who: "anyone", what: "anything", whom: "anyone", when: "any time" };
const NAMES = Object.keys(BOXES);
const TOP = 20; // answers that are asked for at first
const MORE = 100;

export function slots(route) {
  return Object.fromEntries(NAMES.map((name) => [BOXES[name][2], route[name]]).filter(([, value]) => value));
}

// Return which question the filled boxes ask: its title, the path of the service and the open box if it is one.
function question(route, hasTimes) {
  const names = hasTimes ? NAMES : NAMES.slice(0, 3);
  const open = names.filter((name) => !route[name]);
  if (open.length === names.length) return { kind: "none", button: "Ask" };
  if (open.length === 0) return { kind: "fact", button: "How likely?" };
  if (open.length === 1) return { kind: "recall", open: open[0], button: `${BOXES[open[0]][0]}?` };
  return { kind: "know", button: "What holds?" };
}

export function AskView({ route, about, axis }) {
  const hasTimes = Boolean(axis);
  const given = Object.fromEntries(NAMES.map((name) => [name, route[name] ?? ""]));
  const [draft, setDraft] = useState(given);
  useEffect(() => setDraft(given), [JSON.stringify(given)]);
  const submit = (event) => {
    event.preventDefault();
    go(draft);
  };
  const shown = question(route, hasTimes);
  return html`
    <form class="ask" role="search" aria-label="Ask the memory" onSubmit=${submit}>
      ${(hasTimes ? NAMES : NAMES.slice(0, 3)).map(
        (name) => html`<${Combobox}
        key=${name} name=${name} label=${BOXES[name][0]} kind=${BOXES[name][1]} value=${draft[name]}
        placeholder=${ANY[name]} onChange=${(text) => setDraft((last) => ({ ...last, [name]: text }))} />`,
      )}
      <button class="primary" type="submit">${question(draft, hasTimes).button}</button>
    </form>
    ${shown.kind === "none" && html`<${Examples} about=${about} hasTimes=${hasTimes} />`}
    ${shown.kind === "fact" && html`<${FactAnswer} route=${route} axis=${axis} about=${about} />`}
    ${
      (shown.kind === "recall" || shown.kind === "know") &&
      html`<${Listed}
      key=${JSON.stringify(given)} route=${route} asks=${shown} axis=${axis} about=${about} />`
    }`;
}

// What can be asked, from a fact of the memory.
function Examples({ about, hasTimes }) {
  if (!about.example) return html`<p class="quiet">This memory is empty. Teach it a fact.</p>`;
  const fact = asked(about.example);
  const without = (name) => ({ ...fact, [name]: undefined });
  const examples = [
    ["who", "Who?", `${fact.what} ${fact.whom}`],
    ["what", "What?", `${fact.who} and ${fact.whom}`],
    ["whom", "Whom?", `${fact.who} ${fact.what}`],
    ...(hasTimes ? [["when", "When?", `${fact.who} ${fact.what} ${fact.whom}`]] : []),
  ];
  return html`<section class="examples">
    <h2>Leave open what you want to know</h2>
    <p class="quiet">Fill in what you know and leave the rest empty. With one box open, the memory recalls it;
      with more, it lists what holds.</p>
    <ul>
      ${examples.map(
        ([name, word, text]) => html`<li key=${name}><${Link} to=${without(name)}>
        <b>${word}</b>
        <span>${text}${hasTimes && name !== "when" && html`, <span class="number">${fact.when}</span>`}</span>
      <//></li>`,
      )}
      <li><${Link} to=${{ what: fact.what }}>
        <b>${hasTimes ? "Now?" : "All?"}</b>
        <span>${fact.what}, what holds${hasTimes && " at the end of the record"}</span>
      <//></li>
    </ul>
  </section>`;
}

// The answers to a question with one open box or more.
function Listed({ route, asks, axis, about }) {
  const [top, setTop] = useState(TOP);
  const { time, ...triple } = slots(route);
  const isKnow = asks.kind === "know";
  const isWhen = asks.open === "when";
  const parameters = { ...triple, [isKnow ? "as_of" : "time"]: time, top, include: isWhen ? "predicted" : "all" };
  const { answer, error, busy } = useAnswer(isKnow ? "/v1/know" : "/v1/recall", parameters);
  const word = isKnow ? "What holds" : BOXES[asks.open][0];
  const parts = Object.values(triple).join(" · ");
  const at = isKnow ? answer?.as_of : time;
  const open = isKnow ? null : BOXES[asks.open][2];
  const note = isWhen ? "" : answer && counts(answer.answers);
  return html`
    <section class="panel" aria-busy=${String(busy)}>
      <header class="question">
        <h2>${word}${" "}<${Given} text=${parts} time=${at} /></h2>
        <p class="quiet" role="status">${note ?? (error ? "" : "Asking…")}</p>
      </header>
      <${Problem} error=${error} correct=${correction(route)} />
      ${
        isWhen &&
        html`<${Timeline} triple=${triple} axis=${axis} />
        ${answer?.answers.length > 0 && html`<h3>Likely, though not stored</h3>`}`
      }
      ${answer && html`<${Answers} answers=${answer.answers} open=${open} about=${about} />`}
      ${
        answer?.answers.length === top &&
        top < MORE &&
        html`<button class="plain" type="button"
        onClick=${() => setTop(MORE)}>Show up to ${MORE}</button>`
      }
    </section>`;
}

// Return what asks again with another label in the boxes that have a wrong one.
function correction(route) {
  return (given, label) =>
    go(Object.fromEntries(Object.entries(route).map(([name, text]) => [name, text === given ? label : text])));
}

// What is given of a question.
function Given({ text, time, class: name = "" }) {
  const at = time && html`${text && ", "}<span class="number">${time}</span>`;
  return html`<span class=${`given ${name}`}>${text}${at}</span>`;
}

function counts(answers) {
  const stored = answers.filter((each) => each.status === "stored").length;
  if (!answers.length) return "Nothing is stored and nothing is likely.";
  return `${stored} stored, ${answers.length - stored} predicted`;
}

// One fact with all its parts: how likely it is, why, and over time.
function FactAnswer({ route, axis, about }) {
  const fact = slots(route);
  const { answer, error, busy } = useAnswer("/v1/why", { ...fact, explain: 5 });
  const { time, ...triple } = fact;
  return html`
    <section class="panel" aria-busy=${String(busy)}>
      <header class="question">
        <h2><${Given} class="whole" text=${Object.values(triple).join(" · ")} time=${time} /></h2>
      </header>
      <${Problem} error=${error} correct=${correction(route)} />
      ${
        answer &&
        html`<p class="verdict"><strong><${Percent} value=${answer.probability} /></strong>
        <${Badge} status=${answer.status} /></p>
        <${Reasons} answer=${answer} about=${about} />`
      }
      ${axis && html`<${Timeline} triple=${triple} axis=${axis} at=${time} />`}
      <p class="links"><${Link} to=${{ view: "then", entity: fact.subject, at: time }}>${fact.subject} then<//>
        <${Link} to=${{ view: "then", entity: fact.object, at: time }}>${fact.object} then<//>
        ${!about.read_only && html`<${Link} to=${{ view: "teach", ...route }}>Teach or forget<//>`}</p>
    </section>`;
}
