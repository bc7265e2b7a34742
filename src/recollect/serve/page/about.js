// What the memory is, and how far its probabilities can be relied on.
import { html } from "./dom.js";
import { Reliability } from "./reliability.js";

const number = (value) => value.toLocaleString("en");

export function AboutView({ about }) {
  const rows = [
    ["Facts", number(about.facts)],
    ["Entities", number(about.entities)],
    ["Predicates", number(about.predicates)],
    ...(about.times
      ? [
          [
            "Times",
            `${about.times.first} – ${about.times.last} (${number(about.times.count)}, by ${about.times.grain})`,
          ],
        ]
      : []),
    ...(about.as_of ? [["As of", about.as_of]] : []),
    ["Answered by", about.answers_by],
    ["Teaching", about.read_only ? "refused: the service is read-only" : "accepted"],
    ["Forecasts", about.forecasts ? "yes" : "no"],
  ];
  return html`<section class="panel about">
    <h2>${about.name}</h2>
    <dl>
      ${rows.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd class="number">${value}</dd></div>`)}
    </dl>
    <${Reliability} about=${about} />
    <p class="quiet">Programs ask the same questions: <a href="/openapi.json">/openapi.json</a>.</p>
  </section>`;
}
