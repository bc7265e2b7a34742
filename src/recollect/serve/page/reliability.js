// Calibration: among answers said to be true with probability p, the share that is true.
import { html } from "./dom.js";

export function Reliability({ about }) {
  const slots = about.calibrated;
  return html`<p class="quiet">${
    slots.length
      ? `Probabilities are calibrated on facts that were held out: ${slots.join(", ")}.`
      : "Probabilities are not calibrated."
  }</p>`;
}
