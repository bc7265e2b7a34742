// The graph around one entity, drawn as SVG. Places follow from the data alone, so that nothing jumps as time moves.
import { html, useEffect, useRef, useState } from "./dom.js";
import { href, go } from "./route.js";

const LINE = 34; // pixels from one neighbour to the next
const LEAST = 300; // height, pixels
const MOST = 28; // neighbours that are drawn
const MOST_ENDED = 12; // of them, those whose facts have all ended
const NARROW = 560; // pixels, below which there is less room for labels
const LETTERS = 22; // of a label
const LETTERS_NARROW = 15;

// `order` lists the entities of all times, so that a neighbour keeps its place when others come and go.
export function EgoGraph({ entity, edges, order, at, hasEnds }) {
  const place = useRef(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const element = place.current;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const neighbours = collect(entity, edges);
  const shown = choose(neighbours);
  const seats = seatsOf(entity, shown, order);
  const height = Math.max(LEAST, LINE * (Math.ceil(seats.length / 2) + 1));
  const places = layout(seats, width, height);
  const letters = width < NARROW ? LETTERS_NARROW : LETTERS;
  const hidden = neighbours.length - shown.length;
  return html`<figure class="graph" ref=${place}>
    ${
      width > 0 &&
      html`<svg width=${width} height=${height} role="group" aria-label=${`What is around ${entity}`}>
      ${shown.map(
        (each) => html`<${Spoke} key=${each.label} place=${places.get(each.label)}
        center=${[width / 2, height / 2]} neighbour=${each} at=${at} letters=${letters} />`,
      )}
      <circle class="center" cx=${width / 2} cy=${height / 2} r="7" />
      <text class="center" x=${width / 2} y=${height / 2 + 25} text-anchor="middle">${short(entity, letters)}</text>
    </svg>`
    }
    <figcaption class="quiet">
      <span class="key"></span>holds${hasEnds && html`${" "}<span class="key ended"></span>ended`}
      ${hidden > 0 && ` · ${hidden} more are not drawn`}
    </figcaption>
  </figure>`;
}

// Return the neighbours: which predicates lead to each and from it, and whether any of them holds.
function collect(entity, edges) {
  const neighbours = new Map();
  for (const { subject, predicate, object, holds } of edges) {
    const isOut = subject === entity;
    const label = isOut ? object : subject;
    if (label === entity) continue;
    if (!neighbours.has(label)) neighbours.set(label, { label, holds: false, predicates: new Map() });
    const neighbour = neighbours.get(label);
    const name = isOut ? `${predicate} →` : `← ${predicate}`;
    neighbour.holds ||= holds;
    neighbour.predicates.set(name, neighbour.predicates.get(name) || holds);
  }
  return [...neighbours.values()];
}

// Return the neighbours that are drawn: those that hold, then those that ended last.
function choose(neighbours) {
  const held = neighbours.filter((each) => each.holds).slice(0, MOST);
  const ended = neighbours.filter((each) => !each.holds);
  return [...held, ...ended.slice(0, Math.min(MOST_ENDED, MOST - held.length))];
}

// Return the labels that have a place, in order: all that ever were there if they fit, else those that are drawn.
function seatsOf(entity, shown, order) {
  const labels = shown.map((each) => each.label);
  const all = [...new Set([...order, ...labels])].filter((label) => label !== entity);
  return (all.length <= MOST ? all : labels).sort();
}

// Return label -> (x, y, side): one half down the right side of an ellipse, the other up the left, lines apart.
function layout(labels, width, height) {
  const places = new Map();
  const half = Math.ceil(labels.length / 2);
  const rx = Math.max(24, Math.min(width / 2 - (width < NARROW ? 112 : 190), 300));
  labels.forEach((label, i) => {
    const side = i < half ? 1 : -1;
    const line = i < half ? i : labels.length - 1 - i;
    const count = i < half ? half : labels.length - half;
    const y = ((line + 0.5) / count) * (height - 24) + 8;
    const height01 = (2 * y) / height - 1; // from −1 at the top to 1
    const x = width / 2 + side * Math.max(20, rx * Math.sqrt(Math.max(0, 1 - height01 ** 2)));
    places.set(label, [x, y, side]);
  });
  return places;
}

function Spoke({ place: [x, y, side], center, neighbour, at, letters }) {
  const anchor = side > 0 ? "start" : "end";
  const target = { view: "then", entity: neighbour.label, at };
  const onClick = (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    go(target);
  };
  // of a neighbour that still holds, name what holds; of one that ended, what ended
  const names = [...neighbour.predicates].filter(([, holds]) => holds === neighbour.holds).map(([name]) => name);
  const more = names.length > 1 ? ` +${names.length - 1}` : "";
  const description = `${neighbour.label}: ${names.join(", ")}${neighbour.holds ? "" : " (ended)"}`;
  return html`<g class=${neighbour.holds ? "spoke" : "spoke ended"}>
    <line x1=${center[0]} y1=${center[1]} x2=${x} y2=${y} />
    <a href=${href(target)} onClick=${onClick} aria-label=${description}>
      <title>${names.join("\n")}</title>
      <circle cx=${x} cy=${y} r="5" />
      <text x=${x + 11 * side} y=${y + 2} text-anchor=${anchor}>${short(neighbour.label, letters)}</text>
      <text class="predicate" x=${x + 11 * side} y=${y + 16} text-anchor=${anchor}>
        ${short(names[0], letters)}${more}
      </text>
    </a>
  </g>`;
}

function short(text, letters) {
  return text.length > letters ? `${text.slice(0, letters - 1)}…` : text;
}
