// The probability of a fact over time, with the intervals in which it is stored as ticks under the line.
import { html, useEffect, useRef, useState } from "./dom.js";
import { useAnswer } from "./api.js";
import { Problem, percent } from "./answers.js";
import { color, useScheme } from "./colors.js";
import { asked, go } from "./route.js";

const HEIGHT = 200; // pixels
const TICK = 6; // height of a stored interval, pixels
const LISTED = 12; // stored intervals that are written out

export function Timeline({ triple, axis, at }) {
  const { answer, error, busy } = useAnswer("/v1/timeline", { ...triple, points: 800 });
  return html`<figure class="timeline" aria-busy=${String(busy)}>
    <${Problem} error=${error} />
    ${
      answer &&
      html`<${Chart} answer=${answer} axis=${axis} at=${at} triple=${triple} />
      <figcaption><${Stored} intervals=${answer.intervals} /></figcaption>`
    }
  </figure>`;
}

function Stored({ intervals }) {
  const stored = intervals.filter((each) => each.status === "stored");
  if (!stored.length) return html`<p class="quiet">Never stored; the line is what the memory predicts.</p>`;
  const spans = stored.slice(0, LISTED).map(span);
  const more = stored.length - spans.length;
  return html`<p><span class="tick" aria-hidden="true"></span>Stored${" "}
    ${spans.map((text, i) => html`${i > 0 && ", "}<span class="number span">${text}</span>`)}
    ${more > 0 && html`${" "}and ${more} more`}</p>`;
}

// Return an interval in words; one without an end goes on.
function span({ start, end }) {
  if (end === null) return `since ${start}`;
  return start === end ? start : `${start} – ${end}`;
}

function Chart({ answer, axis, at, triple }) {
  const place = useRef(null);
  const [pointed, setPointed] = useState(null);
  const scheme = useScheme();
  useEffect(() => {
    const element = place.current;
    const xs = answer.times.map((time) => axis.index(time));
    const chart = new window.uPlot(
      options(answer, axis, at, element.clientWidth, setPointed),
      [xs, answer.probabilities],
      element,
    );
    const click = () => {
      const index = chart.cursor.idx;
      if (typeof index === "number") go(asked({ ...triple, time: answer.times[index] }));
    };
    chart.over.addEventListener("click", click);
    const observer = new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height: HEIGHT }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      chart.destroy();
    };
  }, [answer, axis, at, scheme]);
  const highest = answer.probabilities.indexOf(Math.max(...answer.probabilities));
  const summary =
    `Probability from ${answer.times[0]} to ${answer.times.at(-1)}; ` +
    `highest, ${percent(answer.probabilities[highest])}, at ${answer.times[highest]}.`;
  return html`<div class="chart" role="img" aria-label=${summary} ref=${place}></div>
    <p class="pointed number" aria-hidden="true">${pointed ?? " "}</p>`;
}

function options(answer, axis, at, width, setPointed) {
  const line = color("line");
  const quiet = color("quiet");
  const accent = color("accent");
  const font = `12px ${getComputedStyle(document.body).fontFamily}`;
  const drawn = { stroke: quiet, font, grid: { stroke: line, width: 1 }, ticks: { show: false } };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, drag: { setScale: false, x: false } },
    padding: [8, 36, 0, 0],
    scales: { x: { time: false }, y: { range: [0, 1] } },
    axes: [
      {
        ...drawn,
        grid: { show: false },
        space: 90,
        incrs: [1, 2, 3, 6, 12, 24, 36, 60, 120, 240, 365, 730, 1000, 5000, 20000],
        values: (_, splits) => splits.map((index) => (Number.isInteger(index) ? axis.label(index) : "")),
      },
      { ...drawn, size: 48, splits: [0, 0.5, 1], values: (_, splits) => splits.map((value) => `${100 * value} %`) },
    ],
    series: [{}, { stroke: accent, width: 1.5, fill: color("tint"), points: { show: false } }],
    hooks: {
      draw: [(chart) => drawIntervals(chart, answer.intervals, axis, at, accent)],
      setCursor: [
        ({ cursor: { idx } }) =>
          setPointed(typeof idx === "number" ? `${answer.times[idx]}  ${percent(answer.probabilities[idx])}` : null),
      ],
    },
  };
}

// Draw the stored intervals at the bottom and a line at the asked time.
function drawIntervals(chart, intervals, axis, at, accent) {
  const { ctx, bbox } = chart;
  const scale = devicePixelRatio;
  const x = (index) => Math.min(bbox.left + bbox.width, Math.max(bbox.left, chart.valToPos(index, "x", true)));
  ctx.save();
  ctx.fillStyle = accent;
  for (const { start, end, status } of intervals) {
    if (status !== "stored") continue;
    const left = x(axis.index(start) - 0.5);
    const right = Math.max(x((end === null ? axis.count : axis.index(end)) + 0.5), left + 2 * scale);
    ctx.fillRect(left, bbox.top + bbox.height - TICK * scale, right - left, TICK * scale);
  }
  const index = at && axis.index(at);
  if (index !== undefined && at) {
    ctx.fillRect(x(index) - scale / 2, bbox.top, scale, bbox.height);
  }
  ctx.restore();
}
