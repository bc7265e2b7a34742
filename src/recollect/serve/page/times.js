// The time axis: from the label of a time to its index and back, for every grain of the service.
const DAY = 86_400_000; // milliseconds
const MONDAY = 3; // days from a Monday to 1970-01-01

const pad = (number, width = 2) => String(number).padStart(width, "0");
const dayOf = (text) => Date.parse(`${text.slice(0, 10)}T00:00Z`) / DAY;
const dateOf = (day) => new Date(day * DAY).toISOString().slice(0, 10);

// Return the Monday of a week by ISO 8601, as a day: that of week 1 has January 4 in it.
function mondayOf(year, week) {
  const fourth = Date.UTC(year, 0, 4) / DAY;
  return fourth - ((fourth + MONDAY) % 7) + 7 * (week - 1);
}

function weekLabel(number) {
  const thursday = number * 7 - MONDAY + 3;
  const year = new Date(thursday * DAY).getUTCFullYear();
  return `${pad(year, 4)}-W${pad(1 + (number * 7 - MONDAY - mondayOf(year, 1)) / 7)}`;
}

// grain -> [number of a label, label of a number]
const GRAINS = {
  ordinal: [Number, String],
  year: [Number, (n) => pad(n, 4)],
  quarter: [
    (t) => Number(t.slice(0, 4)) * 4 + Number(t.slice(-1)) - 1,
    (n) => `${pad(Math.floor(n / 4), 4)}-Q${(n % 4) + 1}`,
  ],
  month: [
    (t) => Number(t.slice(0, 4)) * 12 + Number(t.slice(5)) - 1,
    (n) => `${pad(Math.floor(n / 12), 4)}-${pad((n % 12) + 1)}`,
  ],
  week: [(t) => (mondayOf(Number(t.slice(0, 4)), Number(t.slice(-2))) + MONDAY) / 7, weekLabel],
  day: [dayOf, dateOf],
  hour: [(t) => dayOf(t) * 24 + Number(t.slice(11, 13)), (n) => `${dateOf(Math.floor(n / 24))}T${pad(n % 24)}`],
};

// `times` is that of /v1/memory: grain, first, last, count.
export class Axis {
  constructor(times) {
    const [number, label] = GRAINS[times.grain];
    this.count = times.count;
    this.last = times.last;
    this.first = times.first;
    this.step = times.count > 1 ? (number(times.last) - number(times.first)) / (times.count - 1) : 1;
    this.number = number;
    this.labelOf = label;
  }

  // Return the label of an index; those past the last time are labels too.
  label(index) {
    return this.labelOf(this.number(this.first) + index * this.step);
  }

  // Return the index of a label; undefined for what is none.
  index(label) {
    const index = Math.round((this.number(label) - this.number(this.first)) / this.step);
    return Number.isFinite(index) && this.label(index) === label ? index : undefined;
  }
}
