// The live memory: four boxes of which one is open, its answers, and the question in the address of the page.
import { KINDS, SLOTS, load } from "./scorer.js";

const WORDS = { subject: "who", predicate: "what", object: "whom", time: "when" };
const TOP = 8; // answers shown

/** Return an element with properties, attributes (names with a hyphen, `for`, `role`, `list`) and children. */
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || ["for", "role", "list"].includes(name)) made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children);
  return made;
}

const capital = (word) => word[0].toUpperCase() + word.slice(1);
const openSlot = (question) => SLOTS.find((slot) => question[slot] === undefined);
const given = (question) => SLOTS.filter((slot) => question[slot] !== undefined).map((slot) => question[slot]);

/** Return the fragment of a question, such as #what=President+of&whom=Brionia&when=2007-09. */
function fragment(question) {
  const pairs = SLOTS.filter((slot) => question[slot] !== undefined).map((slot) => [WORDS[slot], question[slot]]);
  return `#${new URLSearchParams(pairs)}`;
}

/** Return the question of a fragment; null of one that has none, such as that of a heading. */
function parse(hash) {
  const parameters = new URLSearchParams(hash.slice(1));
  const present = SLOTS.filter((slot) => parameters.get(WORDS[slot]));
  return present.length ? Object.fromEntries(present.map((slot) => [slot, parameters.get(WORDS[slot])])) : null;
}

/** Return the label that is meant by a text: the same in other case, or the only one that contains it. */
function meant(labels, text) {
  const wanted = text.trim().toLowerCase();
  const near = labels.filter((label) => label.toLowerCase().includes(wanted));
  return near.find((label) => label.toLowerCase() === wanted) ?? (near.length === 1 ? near[0] : text);
}

function percent(probability) {
  if (probability < 0.001) return "< 0.1 %";
  return probability === 1 ? "100 %" : `${Math.min(99.9, 100 * probability).toFixed(1)} %`;
}

function answerRow({ label, probability, stored, withheld }) {
  const status = stored ? "stored" : "predicted";
  const fill = element("span");
  fill.style.width = `${100 * probability}%`;
  const badges = element("span", { className: "badges" }, element("span", { className: `badge ${status}` }, status));
  if (withheld) badges.append(element("span", { className: "badge true" }, "✓ true, withheld"));
  return element(
    "li",
    {},
    element("span", { className: "label" }, label),
    element("span", { className: "bar", "aria-hidden": "true" }, fill),
    element("span", { className: "number" }, percent(probability)),
    badges,
  );
}

class Page {
  constructor(root, memory) {
    this.memory = memory;
    this.question = memory.about.examples[0]; // the last one that was answered
    this.boxes = Object.fromEntries(SLOTS.map((slot) => [slot, this.box(slot)]));
    this.status = element("p", { role: "status", className: "status" });
    this.answers = element("ol");
    const form = element("form", {}, ...Object.values(this.boxes).map(({ whole }) => whole));
    form.addEventListener("submit", (event) => event.preventDefault());
    root.replaceChildren(...this.lists(), form, this.status, this.answers, this.examples(), this.quality());
    addEventListener("hashchange", () => this.follow());
    this.follow();
  }

  /** Return a box: its input, and the button that leaves it open. */
  box(slot) {
    const word = WORDS[slot];
    const input = element("input", {
      id: `live-${word}`,
      list: `live-${KINDS[slot]}`,
      autocomplete: "off",
      spellcheck: false,
    });
    const button = element("button", { type: "button", title: `Ask ${word}`, "aria-label": `Ask ${word}` }, "?");
    input.addEventListener("focus", () => input.select());
    input.addEventListener("change", () => this.change(slot, input.value));
    button.addEventListener("click", () => this.ask(slot));
    const label = element("label", { for: input.id }, capital(word));
    return { input, button, whole: element("div", { className: "box" }, label, input, button) };
  }

  /** Return the lists of labels that complete what is typed. */
  lists() {
    return Object.entries(this.memory.labels).map(([kind, labels]) =>
      element("datalist", { id: `live-${kind}` }, ...labels.map((value) => element("option", { value }))),
    );
  }

  /** Show the question of the address; that of a heading leaves the question as it is. */
  follow() {
    this.show(parse(location.hash) ?? (location.hash ? this.question : this.memory.about.examples[0]));
  }

  /** Leave a slot open. The one that was open gets its best answer. */
  ask(slot) {
    const open = openSlot(this.question);
    if (slot === open) return;
    const [best] = this.memory.recall(this.question, 1);
    this.go({ ...this.question, [open]: best.label, [slot]: undefined });
  }

  change(slot, text) {
    if (text.trim() === "") this.ask(slot);
    else this.go({ ...this.question, [slot]: meant(this.memory.labels[KINDS[slot]], text) });
  }

  /** Show a question and write it to the address, so that the back button returns. */
  go(question) {
    if (fragment(question) !== location.hash) history.pushState(null, "", fragment(question));
    this.show(question);
  }

  show(question) {
    const open = openSlot(question);
    for (const [slot, { input, button }] of Object.entries(this.boxes)) {
      const known = this.memory.labels[KINDS[slot]].includes(question[slot]);
      input.value = question[slot] ?? "";
      input.readOnly = slot === open;
      input.placeholder = slot === open ? `${WORDS[slot]}?` : "";
      input.setAttribute("aria-invalid", String(slot !== open && !known));
      button.setAttribute("aria-pressed", String(slot === open));
    }
    const start = performance.now();
    try {
      const answers = this.memory.recall(question, TOP);
      const candidates = this.memory.labels[KINDS[open]].length;
      const time = Math.max(1, Math.round(performance.now() - start));
      this.question = question;
      const asked = element("b", {}, `${capital(WORDS[open])}?`);
      const cost = `${candidates} candidates scored here in ${time} ms`;
      this.status.replaceChildren(asked, ` ${given(question).join(" · ")} `, element("small", {}, cost));
      this.answers.replaceChildren(...answers.map(answerRow));
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      this.status.replaceChildren(`${error.message}.`);
      this.answers.replaceChildren();
    }
  }

  /** Return links to questions about withheld facts. */
  examples() {
    const items = this.memory.about.examples.map((question) => {
      const word = element("b", {}, `${capital(WORDS[openSlot(question)])}?`);
      return element("li", {}, element("a", { href: fragment(question) }, word, ` ${given(question).join(" · ")}`));
    });
    const title = element("p", {}, "Ask about facts that were withheld:");
    return element("div", { className: "examples" }, title, element("ul", {}, ...items));
  }

  quality() {
    const { labels, tensors, about } = this.memory;
    const count = (number) => number.toLocaleString("en");
    const ranks = SLOTS.map((slot) => `${WORDS[slot]} ${about.mrr[slot].toFixed(2)}`).join(", ");
    const text =
      `${count(labels.entity.length)} entities, ${labels.predicate.length} predicates, ${labels.time.length} months; ` +
      `${count(tensors.stored.shape[0])} facts are stored and ${count(tensors.withheld.shape[0])} withheld. ` +
      `Mean reciprocal rank of the withheld test facts: ${ranks}.`;
    return element("p", { className: "quality" }, text);
  }
}

const root = document.getElementById("live");
try {
  const files = ["memory.safetensors", "memory.json"].map((name) => new URL(name, import.meta.url));
  window.liveMemory = await load(...files); // for the console: liveMemory.recall({ subject, predicate, time })
  new Page(root, window.liveMemory);
} catch (error) {
  root.replaceChildren(element("p", { role: "alert" }, `The memory could not be loaded: ${error.message}.`));
  throw error;
}
