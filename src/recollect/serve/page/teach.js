// Teach the memory a fact, let it forget some, and take either back.
import { html, useEffect, useState } from "./dom.js";
import { remove, send } from "./api.js";
import { Problem } from "./answers.js";
import { BOXES, slots } from "./ask.js";
import { Combobox } from "./combobox.js";
import { ChangeText, Journal } from "./journal.js";
import { go } from "./route.js";

const NAMES = Object.keys(BOXES);
const SHOWN = 12; // facts of a change that are listed

// Take an event of the journal back, all of it at once.
async function undo(changes) {
  return (await send("POST", `/v1/undo?event=${changes[0].event}`)).changes;
}

export function TeachView({ route, axis, onChanged }) {
  const given = Object.fromEntries(NAMES.map((name) => [name, route[name] ?? ""]));
  const [draft, setDraft] = useState(given);
  const [outcome, setOutcome] = useState({}); // changes that were made, those that are proposed, or an error
  const [version, setVersion] = useState(0);
  useEffect(() => setDraft(given), [JSON.stringify(given)]);
  const names = axis ? NAMES : NAMES.slice(0, 3);

  // Do what changes the memory; the view shows what came of it.
  const act = async (work) => {
    try {
      setOutcome({ busy: true });
      setOutcome({ changes: await work() });
      setVersion((last) => last + 1);
      onChanged();
    } catch (error) {
      setOutcome({ error });
    }
  };
  const remember = (event) => {
    event.preventDefault();
    go({ view: "teach", ...draft }, { replace: true });
    act(async () => (await send("POST", "/v1/facts", { facts: [slots(draft)] })).changes);
  };
  // Facts of one triple are forgotten at once; more are shown first.
  const forget = async () => {
    const parts = slots(draft);
    try {
      const found = await remove("/v1/facts", { ...parts, preview: true });
      const triples = new Set(found.changes.map((each) => JSON.stringify([each.subject, each.predicate, each.object])));
      if (triples.size > 1) setOutcome({ proposed: found, parts });
      else act(async () => (await remove("/v1/facts", parts)).changes);
    } catch (error) {
      setOutcome({ error });
    }
  };
  const forgetAll = () => act(async () => (await remove("/v1/facts", { ...outcome.parts, several: true })).changes);
  return html`
    <form class="ask teach" aria-label="Teach the memory" onSubmit=${remember}>
      ${names.map(
        (name) => html`<${Combobox}
        key=${name} name=${name} label=${BOXES[name][0]} kind=${BOXES[name][1]} value=${draft[name]}
        placeholder=${name === "when" ? axis.last : ""}
        onChange=${(text) => setDraft((last) => ({ ...last, [name]: text }))} />`,
      )}
      <div class="buttons">
        <button class="primary" type="submit">Remember</button>
        <button class="second" type="button" onClick=${forget}>Forget</button>
      </div>
    </form>
    <p class="quiet">To remember a fact, give all of its parts; new names are fine. To forget, give the parts that the
      facts have in common.</p>
    <${Problem} error=${outcome.error} />
    ${
      outcome.proposed &&
      html`<${Proposed} found=${outcome.proposed} onAccept=${forgetAll}
      onReject=${() => setOutcome({})} />`
    }
    <div role="status">${
      outcome.changes &&
      html`<${Outcome} changes=${outcome.changes}
      onUndo=${() => act(() => undo(outcome.changes))} />`
    }</div>
    <${Journal} version=${version} onUndo=${(changes) => act(() => undo(changes))} />`;
}

// What was just changed, with a way back.
function Outcome({ changes, onUndo }) {
  if (!changes.length) return html`<p class="outcome">Nothing changed: the memory was like this already.</p>`;
  const canUndo = changes.every((each) => each.change !== "erased");
  const word = changes[0].change === "added" ? "Remembered" : "Forgotten";
  return html`<div class="outcome">
    <p><strong>${word}</strong> ${changes.length > 1 && html`<span class="number">${changes.length}</span>`}</p>
    <ul>${changes.slice(0, SHOWN).map(
      (each) => html`<li key=${JSON.stringify(each)}>
      <${ChangeText} change=${each} /></li>`,
    )}</ul>
    ${canUndo && html`<button type="button" class="plain" onClick=${onUndo}>Undo</button>`}
  </div>`;
}

// What would be forgotten, before it is.
function Proposed({ found, onAccept, onReject }) {
  const count = found.changes.length + found.left_out;
  return html`<div class="outcome" role="alert">
    <p>This forgets <strong class="number">${count.toLocaleString("en")}</strong> entries of the store:</p>
    <ul>${found.changes.slice(0, SHOWN).map(
      (each) => html`<li key=${JSON.stringify(each)}>
      <${ChangeText} change=${each} /></li>`,
    )}</ul>
    ${count > SHOWN && html`<p class="quiet">and ${(count - SHOWN).toLocaleString("en")} more</p>`}
    <button type="button" class="second" onClick=${onAccept}>Forget them</button>
    <button type="button" class="plain" onClick=${onReject}>Keep them</button>
  </div>`;
}
