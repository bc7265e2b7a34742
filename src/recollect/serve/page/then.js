// What was true at a time: a slider over all times, the facts of then, and those that had ended.
import { html, useEffect, useRef, useState } from "./dom.js";
import { useAnswer } from "./api.js";
import { FactText, Problem } from "./answers.js";
import { Combobox } from "./combobox.js";
import { EgoGraph } from "./graph.js";
import { Link, asked, go } from "./route.js";

const SHOWN = 100; // facts that hold
const ENDED = 60; // facts that ended, the latest first
const AROUND = 400; // facts of all times, for the places of entities in the graph
const SETTLE = 250; // milliseconds until the place of the slider is written into the URL

export function ThenView({ route, axis, about }) {
  const common = useAnswer("entity" in route ? null : "/v1/labels", { kind: "entity", top: 1 });
  const entity = "entity" in route ? route.entity : common.answer?.labels[0]?.label;
  if (entity === undefined) return html`<${Problem} error=${common.error} />`;
  return html`<${Then} entity=${entity} at=${route.at} axis=${axis} about=${about} />`;
}

function Then({ entity, at, axis, about }) {
  const start = axis ? (axis.index(at ?? axis.last) ?? axis.count - 1) : 0;
  const [index, setIndex] = useState(start);
  const timer = useRef(0);
  useEffect(() => setIndex(start), [start]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const move = (next) => {
    const to = Math.min(axis.count - 1, Math.max(0, next));
    setIndex(to);
    clearTimeout(timer.current);
    const show = () => go({ view: "then", entity, at: axis.label(to) }, { replace: true });
    timer.current = setTimeout(show, SETTLE);
  };
  const asOf = axis ? axis.label(index) : undefined;
  const around = useAnswer("/v1/graph", { entity, as_of: axis?.last, top: AROUND, ended: AROUND });
  const { answer, error, busy } = useAnswer("/v1/graph", { entity, as_of: asOf, top: SHOWN, ended: ENDED });
  const order = (around.answer ?? answer)?.nodes.map((each) => each.label);
  const held = answer?.edges.filter((each) => each.holds) ?? [];
  const ended = answer?.edges.filter((each) => !each.holds) ?? [];
  return html`
    <${EntityForm} key=${entity} entity=${entity} go=${(label) => go({ view: "then", entity: label, at: asOf })} />
    ${axis && html`<${Slider} axis=${axis} index=${index} move=${move} />`}
    <${Problem} error=${error} correct=${(_, label) => go({ view: "then", entity: label, at: asOf })} />
    <section class="then" aria-busy=${String(busy)}>
      ${
        answer &&
        entity &&
        html`<${EgoGraph}
        entity=${entity} edges=${answer.edges} order=${order} at=${asOf} hasEnds=${Boolean(axis)} />`
      }
      ${
        answer &&
        html`<div class="lists">
        <${Facts} title=${["True", asOf ?? about.as_of].filter(Boolean).join(" as of ")} facts=${held} more=${answer.left_out} at=${asOf} />
        ${axis && html`<${Facts} title="Ended before" facts=${ended} isEnded />`}
      </div>`
      }
    </section>`;
}

function EntityForm({ entity, go: show }) {
  const [draft, setDraft] = useState(entity);
  const submit = (event) => {
    event.preventDefault();
    show(draft);
  };
  return html`<form class="ask one" role="search" aria-label="Choose an entity" onSubmit=${submit}>
    <${Combobox} name="entity" label="Around" kind="entity" value=${draft} placeholder="everything"
      onChange=${setDraft} />
    <button class="primary" type="submit">Show</button>
  </form>`;
}

function Slider({ axis, index, move }) {
  const label = axis.label(index);
  return html`<div class="slider">
    <button type="button" class="plain" aria-label="Earlier" disabled=${index === 0}
      onClick=${() => move(index - 1)}>‹</button>
    <div>
      <label for="then">Then <output class="number" for="then">${label}</output></label>
      <input id="then" type="range" min="0" max=${axis.count - 1} step="1" value=${index} aria-valuetext=${label}
        onInput=${(event) => move(Number(event.target.value))} />
      <p class="ends number" aria-hidden="true"><span>${axis.first}</span><span>${axis.last}</span></p>
    </div>
    <button type="button" class="plain" aria-label="Later" disabled=${index === axis.count - 1}
      onClick=${() => move(index + 1)}>›</button>
  </div>`;
}

function Facts({ title, facts, more = 0, isEnded = false, at }) {
  const isCut = isEnded && facts.length === ENDED;
  const count = isCut ? `latest ${ENDED}` : (facts.length + more).toLocaleString("en");
  return html`<section class=${isEnded ? "facts ended" : "facts"}>
    <h2>${title} <small class="number">${count}</small></h2>
    ${
      facts.length
        ? html`<ul>
      ${facts.map(
        (each) => html`<li key=${`${each.subject}|${each.predicate}|${each.object}|${each.start}`}>
        <${Link} to=${asked({ ...each, time: isEnded ? each.end : at })}><${FactText} fact=${each} /><//>
        ${
          each.start && html`<span class="number quiet">${isEnded ? `until ${each.end}` : `since ${each.start}`}</span>`
        }
      </li>`,
      )}
    </ul>`
        : html`<p class="quiet">${isEnded ? "Nothing yet." : "Nothing is stored as true."}</p>`
    }
    ${more > 0 && html`<p class="quiet">${more.toLocaleString("en")} more are not shown.</p>`}
  </section>`;
}
