"""Every model once more, as the paper prints it, in loops over plain Python numbers.

Written from the paper's equations, not from `recollect.models`: nothing here may import it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

Vector = list[float]


def correlate(a: Vector, b: Vector) -> Vector:
    """[a ⋆ b]_k = Σ_i a_i b_{(k+i) mod d}."""
    d = len(a)
    return [sum(a[i] * b[(k + i) % d] for i in range(d)) for k in range(d)]


def dot(a: Vector, b: Vector) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def distmult(w, s, p, o, t=None):
    e, r, (lam,) = w["entity"], w["predicate"], [w["core0"]]
    times = w["time"][t] if t is not None else [1.0] * len(lam)
    return sum(lam[i] * times[i] * e[s][i] * r[p][i] * e[o][i] for i in range(len(lam)))


def hole(w, s, p, o, t=None):
    inner = correlate(w["entity"][s], w["entity"][o])
    if t is None:
        return dot(w["predicate"][p], inner)
    return dot(w["time"][t], correlate(w["predicate"][p], inner))


def complex_(w, s, p, o, t=None):
    total = 0j
    for i in range(len(w["entity"][0])):
        term = complex(*w["entity"][s][i]) * complex(*w["predicate"][p][i]) * complex(*w["entity"][o][i]).conjugate()
        total += term * complex(*w["time"][t][i]) if t is not None else term
    return total.real


def rescal(w, s, p, o, t=None):
    g, e = w["predicate"][p], w["entity"]
    return sum(e[s][i] * g[i][j] * e[o][j] for i, j in product(range(len(e[s])), range(len(e[o]))))


def tucker(w, s, p, o, t=None):
    a, b, c, core = w["entity"][s], w["predicate"][p], w["entity"][o], w["core0"]
    if t is None:
        axes = product(range(len(a)), range(len(b)), range(len(c)))
        return sum(a[i] * b[j] * c[k] * core[i][j][k] for i, j, k in axes)
    d = w["time"][t]
    axes = product(range(len(d)), range(len(a)), range(len(b)), range(len(c)))
    return sum(d[m] * a[i] * b[j] * c[k] * core[m][i][j][k] for m, i, j, k in axes)


def tree(w, s, p, o, t=None):
    if t is None:  # the same with a time of one number, 1
        return tree(
            {**w, "time": [[1.0]], "core0": [w["core0"]], "core1": [[[x] for x in g] for g in w["core1"]]}, s, p, o, 0
        )
    at, as_, ao, gp, g1, g2 = w["time"][t], w["entity"][s], w["entity"][o], w["predicate"][p], w["core0"], w["core1"]
    rt, r, rp = range(len(at)), range(len(as_)), range(len(gp))
    total = 0.0
    for r1, r2, r3, r4, r5, r6 in product(rt, r, rp, rp, r, rt):
        total += at[r1] * as_[r2] * g1[r1][r2][r3] * gp[r3][r4] * g2[r4][r5][r6] * ao[r5] * at[r6]
    return total


def cont(w, s, p, o, t=None):
    a, b, c = w["entity"][s], w["predicate"][p], w["entity"][o]
    g = w["core0"] if t is None else w["time"][t]
    axes = product(range(len(a)), range(len(b)), range(len(c)))
    return sum(a[i] * b[j] * c[k] * g[i][j][k] for i, j, k in axes)


def from_equations(episodic, semantic):
    """Return the oracle of equations, each as (slots with their axes, axes of each core): a sum over all axes."""

    def oracle(w, s, p, o, t=None):
        slots, cores = semantic if t is None else episodic
        ids = {"s": ("entity", s), "p": ("predicate", p), "o": ("entity", o), "t": ("time", t)}
        tensors = [(axes, w[ids[slot][0]][ids[slot][1]]) for slot, axes in slots]
        tensors += [(axes, w[f"core{number}"]) for number, axes in enumerate(cores)]
        sizes = {}
        for axes, tensor in tensors:
            for axis in axes:
                sizes[axis] = len(tensor)
                tensor = tensor[0]
        total = 0.0
        for point in product(*map(range, sizes.values())):
            at, term = dict(zip(sizes, point, strict=True)), 1.0
            for axes, tensor in tensors:
                for axis in axes:
                    tensor = tensor[at[axis]]
                term *= tensor
            total += term
        return total

    return oracle


ORACLES: dict[str, Callable[..., float]] = {
    "distmult": distmult,
    "hole": hole,
    "complex": complex_,
    "rescal": rescal,
    "tucker": tucker,
    "tree": tree,
    "cont": cont,
}
