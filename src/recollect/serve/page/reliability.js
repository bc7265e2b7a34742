// Calibration: among answers said to be true with probability p, the share that is true.
import { html, useEffect, useState } from "./dom.js";
import { useAnswer } from "./api.js";
import { Problem, percent } from "./answers.js";

const SIZE = 260; // of the plot, pixels
const LEFT = 44; // room for labels
const BOTTOM = 30;
const AGAIN = 700; // milliseconds until it is asked again whether all is measured
const FEW = 20; // candidates below which a share says little
const WORDS = { subject: "Who", predicate: "What", object: "Whom", time: "When", entity: "Who and whom" };

export function Reliability({ about }) {
  const [asked, setAsked] = useState(0);
  const { answer, error, busy } = useAnswer("/v1/reliability", {}, asked);
  const isMeasuring = answer?.status === "measuring";
  useEffect(() => {
    if (!isMeasuring || busy) return undefined;
    const timer = setTimeout(() => setAsked(asked + 1), AGAIN);
    return () => clearTimeout(timer);
  }, [isMeasuring, busy, asked]);
  const [chosen, setChosen] = useState(0);
  if (!about.calibrated.length) return html`<p class="quiet">Probabilities are not calibrated.</p>`;
  const slot = answer?.slots[chosen];
  return html`<section class="reliability" aria-busy=${String(isMeasuring || !answer)}>
    <h2>How far probabilities can be relied on</h2>
    <${Problem} error=${error} />
    <p class="quiet" role="status">${isMeasuring && `Measuring on ${answer.facts.toLocaleString("en")} withheld facts…`}</p>
    ${
      answer?.status === "none" &&
      html`<p class="quiet">Nothing is measured here: all facts were learned and none withheld.
      Probabilities are calibrated on facts that were held out while learning.</p>`
    }
    ${
      slot &&
      html`<p class="quiet">Of answers said to be true with a probability, the share that is true, by tenth;
        on the diagonal the two agree. Asked about a sample of ${answer.facts.toLocaleString("en")} withheld facts${
          answer.ahead ? ", which are later than all that is stored; each was asked about with everything before it" : ""
        }.</p>
      <div class="choices" role="group" aria-label="Part of the fact">
        ${answer.slots.map(
          (each, i) => html`<button type="button" class="plain" key=${each.slot}
          aria-pressed=${String(i === chosen)} onClick=${() => setChosen(i)}>${WORDS[each.slot] ?? each.slot}</button>`,
        )}
      </div>
      <div class="measured"><${Plot} bins=${slot.bins} /><${Table} bins=${slot.bins} /></div>`
    }
  </section>`;
}

function Plot({ bins }) {
  const x = (value) => LEFT + value * SIZE;
  const y = (value) => 10 + (1 - value) * SIZE;
  const points = bins.map((each) => `${x(each.predicted)},${y(each.observed)}`).join(" ");
  return html`<svg class="plot" width=${LEFT + SIZE + 12} height=${SIZE + BOTTOM + 12} role="img"
    aria-label="Share that is true against predicted probability; the table has the same figures">
    ${[0, 0.5, 1].map(
      (value) => html`<g key=${value}>
      <line class="grid" x1=${x(0)} x2=${x(1)} y1=${y(value)} y2=${y(value)} />
      <text x=${LEFT - 8} y=${y(value) + 4} text-anchor="end">${100 * value} %</text>
      <text x=${x(value)} y=${y(0) + 18} text-anchor=${value === 1 ? "end" : "middle"}>${100 * value} %</text>
    </g>`,
    )}
    <line class="diagonal" x1=${x(0)} y1=${y(0)} x2=${x(1)} y2=${y(1)} />
    <polyline points=${points} />
    ${bins.map(
      (each) => html`<circle key=${each.predicted} cx=${x(each.predicted)} cy=${y(each.observed)} r="4"
      class=${each.candidates < FEW ? "few" : ""} />`,
    )}
  </svg>`;
}

function Table({ bins }) {
  return html`<table>
    <thead><tr><th scope="col">Said</th><th scope="col">True</th><th scope="col">Answers</th></tr></thead>
    <tbody>
      ${bins.map(
        (each) => html`<tr key=${each.predicted} class="number">
        <td>${percent(each.predicted)}</td><td>${percent(each.observed)}</td>
        <td>${each.candidates.toLocaleString("en")}</td>
      </tr>`,
      )}
    </tbody>
  </table>`;
}
