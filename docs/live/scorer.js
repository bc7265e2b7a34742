// A memory in the browser: reads embedding tables and facts from a safetensors file, answers questions by one equation.
// No library and no server: θ = Re Σ_r s[r] p[r] conj(o[r]) t[r], all complex, and a calibrated probability.

export const SLOTS = ["subject", "predicate", "object", "time"];
export const KINDS = { subject: "entity", predicate: "predicate", object: "entity", time: "time" };
const ARRAYS = { F32: Float32Array, I32: Int32Array };

/** Return { name: { shape, data } } of a safetensors file: 8 bytes of length, a JSON header, little-endian numbers. */
export function readTensors(buffer) {
  const start = 8 + Number(new DataView(buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, start - 8)));
  const tensors = {};
  for (const [name, { dtype, shape, data_offsets: [first, last] }] of Object.entries(header)) {
    if (name !== "__metadata__") {
      tensors[name] = { shape, data: new ARRAYS[dtype](buffer.slice(start + first, start + last)) };
    }
  }
  return tensors;
}

/** Return the memory of two files: its tensors, and the JSON of its labels and calibration. */
export async function load(tensors, description) {
  const [binary, text] = await Promise.all([fetch(tensors), fetch(description)]);
  if (!binary.ok || !text.ok) throw new Error(`cannot load ${binary.ok ? description : tensors}`);
  return new Memory(readTensors(await binary.arrayBuffer()), await text.json());
}

export class Memory {
  constructor(tensors, about) {
    this.tensors = tensors; // entity, predicate, time: (N, dim, 2); stored, withheld: (n, 4) ids
    this.about = about;
    this.labels = about.labels; // kind -> label of each id
    this.dim = tensors.entity.shape[1];
  }

  /** Return the answers to a question that leaves one slot out: { label, score, probability, stored, withheld }. */
  recall(question, top = 10) {
    const open = openSlot(question);
    const ids = SLOTS.map((slot) => (slot === open ? -1 : this.id(slot, question[slot])));
    const scores = this.scores(ids, open);
    const stored = this.find("stored", ids);
    const withheld = this.find("withheld", ids);
    const probabilities = this.probabilities(scores, stored, open);
    // stored answers come first, of several times the newest first; then scores decide, then the order of labels
    const rank = (id) => (open === "time" && stored.has(id) ? id : scores[id]);
    const order = [...scores.keys()].sort((x, y) => stored.has(y) - stored.has(x) || rank(y) - rank(x) || x - y);
    return order.slice(0, top).map((id) => ({
      label: this.labels[KINDS[open]][id],
      score: scores[id],
      probability: stored.has(id) ? 1 : probabilities[id],
      stored: stored.has(id),
      withheld: withheld.has(id), // true, and kept from the memory when it learned
    }));
  }

  /** Return θ of the fact with each id in the open slot. Subjects are the objects of inverse predicates. */
  scores([s, p, o, t], open) {
    const inverse = this.labels.predicate.length;
    const ids = open === "subject" ? [o, p + inverse, -1, t] : [s, p, o, t];
    const slot = open === "subject" ? "object" : open;
    const others = SLOTS.filter((other) => other !== slot);
    const query = others.map((other) => this.factor(other, ids[SLOTS.indexOf(other)])).reduce(multiply);
    const { length } = this.labels[KINDS[slot]];
    return Float64Array.from({ length }, (_, id) => realSum(multiply(query, this.factor(slot, id))));
  }

  /** Return σ((a + d z) x + b + c z), x being the logit of a softmax over all but stored answers, z = log(1 + stored). */
  probabilities(scores, stored, open) {
    const [a, b, c, d] = this.about.calibration[open[0]];
    const limit = this.about.highest[open[0]]; // what the held-out answers support
    const z = Math.log1p(stored.size);
    const predicted = scores.filter((_, id) => !stored.has(id));
    const highest = Math.max(...predicted);
    const total = predicted.reduce((sum, score) => sum + Math.exp(score - highest), 0);
    return scores.map((score) => {
      const logShare = Math.min(score - highest - Math.log(total), -1e-12);
      const x = logShare - Math.log(-Math.expm1(logShare));
      return Math.min(limit, 1 / (1 + Math.exp(-(Math.max(0, a + d * z) * x + b + c * z))));
    });
  }

  /** Return the complex row of an id, re and im in turns; that of an object is conjugated. */
  factor(slot, id) {
    const width = 2 * this.dim;
    const row = Float64Array.from(this.tensors[KINDS[slot]].data.subarray(id * width, (id + 1) * width));
    return slot === "object" ? row.map((x, i) => (i % 2 ? -x : x)) : row;
  }

  /** Return the ids that complete a question, −1 where it is open, to a fact of a set: "stored" or "withheld". */
  find(set, ids) {
    const { data } = this.tensors[set];
    const column = ids.indexOf(-1);
    const found = new Set();
    for (let row = 0; row < data.length; row += 4) {
      if (ids.every((id, i) => i === column || data[row + i] === id)) found.add(data[row + column]);
    }
    return found;
  }

  /** Return the id of a label. */
  id(slot, label) {
    const id = this.labels[KINDS[slot]].indexOf(label);
    if (id < 0) throw new RangeError(`“${label}” is no ${KINDS[slot]} of this memory`);
    return id;
  }
}

function openSlot(question) {
  const open = SLOTS.filter((slot) => question[slot] === undefined);
  if (open.length !== 1) throw new RangeError("leave exactly one slot open");
  return open[0];
}

/** Return the product of complex vectors, entry by entry. */
function multiply(x, y) {
  return x.map((_, i) => (i % 2 ? x[i - 1] * y[i] + x[i] * y[i - 1] : x[i] * y[i] - x[i + 1] * y[i + 1]));
}

function realSum(x) {
  return x.reduce((sum, value, i) => (i % 2 ? sum : sum + value), 0);
}
