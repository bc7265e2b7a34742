"""The seven models as a plain PyTorch script has them: the reference of the contests.

Embedding tables, the equation as an einsum over a batch's rows, negatives scored like facts, Adam over all weights,
filters in a dictionary. No Python loop over facts in training, and no tricks. Facts are id tensors (n, 4) with the
columns s p o t.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

COLUMNS = {"s": 0, "p": 1, "o": 2, "t": 3}
EVALUATION_BATCH = 256  # facts per score matrix
Filter = dict[tuple[int, ...], list[int]]


class Textbook(nn.Module):
    """Embeddings of entities, predicates and times, and the einsum that scores a fact.

    `axes` are the latent axes of each slot, `cores` those of shared core tensors; `t: "a+f"` occurs twice.
    """

    axes: ClassVar[dict[str, str]]
    cores: ClassVar[tuple[str, ...]] = ()
    order: ClassVar[str] = ""  # of contraction: slots by letter, cores by number; "" = slots, then cores
    width: ClassVar[Mapping[str, int]] = {}  # kind -> k: its rows have dim^k elements; 1 if missing
    time_axes: ClassVar[str] = ""  # axes of length time_dim
    parts: ClassVar[int] = 1  # 2 = complex

    def __init__(self, entities: int, predicates: int, times: int, dim: int, time_dim: int | None = None) -> None:
        super().__init__()
        self.dim, self.time_dim = dim, time_dim or dim
        self.entity = self._embedding("entity", entities)
        self.predicate = self._embedding("predicate", predicates)
        self.time = self._embedding("time", times)
        self.core = nn.ParameterList(
            [nn.init.normal_(torch.empty([self.length(axis) for axis in core]), std=0.1) for core in self.cores]
        )

    def length(self, axis: str) -> int:
        return self.time_dim if axis in self.time_axes else self.dim

    def _embedding(self, kind: str, count: int) -> nn.Embedding:
        length = self.time_dim if kind == "time" and self.time_axes else self.dim
        embedding = nn.Embedding(count, self.parts * length ** self.width.get(kind, 1))
        nn.init.xavier_uniform_(embedding.weight)
        return embedding

    def embedding(self, slot: str) -> nn.Embedding:
        return {"s": self.entity, "p": self.predicate, "o": self.entity, "t": self.time}[slot]

    def shaped(self, slot: str, rows: Tensor) -> Tensor:
        """Return rows (n, width) of a table as vectors, matrices or cores."""
        first, *_ = self.axes[slot].split("+")
        return rows.view(len(rows), *[self.length(axis) for axis in first])

    def forward(self, s: Tensor, p: Tensor, o: Tensor, t: Tensor) -> Tensor:
        """Return θ of each fact: (B,)."""
        rows = {
            slot: self.shaped(slot, self.embedding(slot)(ids)) for slot, ids in zip("spot", (s, p, o, t), strict=True)
        }
        return self.contract(rows, dict.fromkeys(rows, "B"), "B")

    def against(self, slot: str, s: Tensor, p: Tensor, o: Tensor, t: Tensor) -> Tensor:
        """Return θ of each fact with every candidate in place of its `slot`: (B, N)."""
        ids = {"s": s, "p": p, "o": o, "t": t}
        rows = {
            other: self.shaped(
                other, self.embedding(other).weight if other == slot else self.embedding(other)(ids[other])
            )
            for other in ids
        }
        return self.contract(rows, {other: "N" if other == slot else "B" for other in rows}, "BN")

    def contract(self, rows: dict[str, Tensor], batch: dict[str, str], out: str) -> Tensor:
        """Return the einsum, contracted from left to right; candidates come last to keep intermediate tensors small."""
        terms = {slot: [(batch[slot] + axes, rows[slot]) for axes in self.axes[slot].split("+")] for slot in self.axes}
        terms |= {
            str(place): [(axes, core)] for place, (axes, core) in enumerate(zip(self.cores, self.core, strict=True))
        }
        order = sorted(self.order or terms, key=lambda name: batch.get(name) == "N")
        axes, operands = zip(*(terms[name].pop(0) for name in order), strict=True)
        return torch.einsum(",".join(axes) + "->" + out, *operands)


class DistMult(Textbook):
    axes: ClassVar = {"s": "r", "p": "r", "o": "r", "t": "r"}
    cores = ("r",)


class ComplEx(Textbook):
    axes: ClassVar = {"s": "r", "p": "r", "o": "r", "t": "r"}
    parts = 2

    def shaped(self, slot: str, rows: Tensor) -> Tensor:
        a = torch.view_as_complex(rows.view(len(rows), self.dim, 2))
        return a.conj() if slot == "o" else a

    def contract(self, rows: dict[str, Tensor], batch: dict[str, str], out: str) -> Tensor:
        return super().contract(rows, batch, out).real


class HolE(Textbook):
    """θ = a_t · (a_p ⋆ (a_s ⋆ a_o)), ⋆ circular correlation; as a sum over the spectrum for any open slot."""

    axes: ClassVar = {"s": "r", "p": "r", "o": "r", "t": "r"}

    def contract(self, rows: dict[str, Tensor], batch: dict[str, str], out: str) -> Tensor:
        if out == "B":
            return (rows["t"] * correlate(rows["p"], correlate(rows["s"], rows["o"]))).sum(dim=1)
        (slot,) = [slot for slot, letter in batch.items() if letter == "N"]
        spectrum = torch.ones((), dtype=torch.complex64)
        for other in rows.keys() - {slot}:
            factor = torch.fft.rfft(rows[other])
            spectrum = spectrum * (factor.conj() if other == "o" else factor)
        query = torch.fft.irfft(spectrum if slot == "o" else spectrum.conj(), n=self.dim)
        return query @ rows[slot].T


class Rescal(Textbook):
    """θ = Σ_ij a_s[i] G_p[i,j] a_o[j]: no times, every predicate has a matrix."""

    axes: ClassVar = {"s": "i", "p": "ij", "o": "j"}
    width: ClassVar = {"predicate": 2}

    def shaped(self, slot: str, rows: Tensor) -> Tensor:
        return rows if slot == "t" else super().shaped(slot, rows)


class Tucker(Textbook):
    axes: ClassVar = {"s": "i", "p": "j", "o": "k", "t": "l"}
    cores = ("lijk",)
    order = "0tspo"
    time_axes = "l"


class Tree(Textbook):
    axes: ClassVar = {"s": "b", "p": "cd", "o": "e", "t": "a+f"}
    cores = ("abc", "def")
    order = "0tsp1to"
    time_axes = "af"
    width: ClassVar = {"predicate": 2}


class ConT(Textbook):
    """θ = Σ_ijk a_s[i] a_p[j] a_o[k] G_t[i,j,k]: the core of its time is gathered for every fact."""

    axes: ClassVar = {"s": "i", "p": "j", "o": "k", "t": "ijk"}
    width: ClassVar = {"time": 3}


MODELS: dict[str, type[Textbook]] = {
    "distmult": DistMult,
    "hole": HolE,
    "complex": ComplEx,
    "rescal": Rescal,
    "tucker": Tucker,
    "tree": Tree,
    "cont": ConT,
}


def build(name: str, sizes: Mapping[str, int], dim: int, time_dim: int | None = None) -> Textbook:
    """Return a new model with weights drawn from PyTorch's global generator."""
    return MODELS[name](sizes["entity"], sizes["predicate"], sizes["time"], dim, time_dim)


def correlate(a: Tensor, b: Tensor) -> Tensor:
    """Return the circular correlation [a ⋆ b]_k = Σ_i a_i b_(k+i) of rows, by FFT."""
    return torch.fft.irfft(torch.fft.rfft(a).conj() * torch.fft.rfft(b), n=a.shape[-1])


def optimizer_of(model: Textbook, learning_rate: float = 1e-3, weight_decay: float = 0.0) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=learning_rate, weight_decay=weight_decay)


def train_step(model: Textbook, optimizer: torch.optim.Optimizer, batch: Tensor) -> float:
    """Take a step on the logistic loss with a negative subject and a negative object per fact; return the loss."""
    s, p, o, t = batch.T
    entities = model.entity.num_embeddings
    true = model(s, p, o, t)
    false_subject = model(torch.randint(entities, s.shape), p, o, t)
    false_object = model(s, p, torch.randint(entities, o.shape), t)
    loss = (functional.softplus(-true) + functional.softplus(false_subject) + functional.softplus(false_object)).mean()
    return step_down(optimizer, loss)


def one_vs_all_step(model: Textbook, optimizer: torch.optim.Optimizer, batch: Tensor) -> float:
    """Take a step on the cross entropy of subjects and objects among all entities; return the loss."""
    s, p, o, t = batch.T
    loss = functional.cross_entropy(model.against("o", s, p, o, t), o) + functional.cross_entropy(
        model.against("s", s, p, o, t), s
    )
    return step_down(optimizer, loss)


def step_down(optimizer: torch.optim.Optimizer, loss: Tensor) -> float:
    """Take one optimizer step and return the loss."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def filter_of(facts: Tensor, slot: str) -> Filter:
    """Return the known ids of a slot by the ids of all other slots."""
    known: Filter = defaultdict(list)
    for row in facts.tolist():
        known[key(row, slot)].append(row[COLUMNS[slot]])
    return known


def key(row: list[int], slot: str) -> tuple[int, ...]:
    return tuple(row[: COLUMNS[slot]] + row[COLUMNS[slot] + 1 :])


@torch.no_grad()
def evaluate(model: Textbook, facts: Tensor, slot: str, known: Filter) -> Tensor:
    """Return the filtered rank of each fact's own id of a slot: (n,)."""
    ranks = []
    for batch in facts.split(EVALUATION_BATCH):
        scores = model.against(slot, *batch.T)
        target = batch[:, COLUMNS[slot]]
        own = scores.gather(1, target[:, None])
        for i, row in enumerate(batch.tolist()):
            scores[i, known[key(row, slot)]] = -torch.inf
        scores.scatter_(1, target[:, None], own)
        ranks.append(1 + (scores > own).sum(dim=1) + ((scores == own).sum(dim=1) - 1) / 2)
    return torch.cat(ranks)


@torch.no_grad()
def recall(model: Textbook, fact: Tensor, slot: str, labels: list[str], top: int = 10) -> list[tuple[str, float]]:
    """Return the best labels of one open slot with their probabilities."""
    scores = model.against(slot, *fact.T)[0]
    best = scores.topk(min(top, len(scores)))
    return [(labels[i], p) for i, p in zip(best.indices.tolist(), best.values.sigmoid().tolist(), strict=True)]


def save(model: Textbook, labels: dict[str, list[str]], facts: Tensor, path: Path) -> None:
    torch.save({"weights": model.state_dict(), "labels": labels, "facts": facts}, path)


def load_(model: Textbook, path: Path) -> dict[str, Any]:
    """Load the weights of a file into the model; return labels, their ids, and facts."""
    stored = torch.load(path)
    model.load_state_dict(stored["weights"])
    ids = {kind: {label: i for i, label in enumerate(names)} for kind, names in stored["labels"].items()}
    return {"labels": stored["labels"], "ids": ids, "facts": stored["facts"]}
