"""Race to a validation MRR on ICEWS14: ours against a textbook TNTComplEx, in the same run.

The textbook model is what a plain PyTorch script has: reciprocal predicates, one-vs-all cross entropy of random batches
of 1,000, Adagrad at 0.1, the nuclear 3-norm and a smoothness of times, at the dim (156) and weights (0.01) that were
published for it. Ours are the modern recipe with fewer candidates and without what pays only later (strong penalties,
dropout, label smoothing), at dims that were chosen on validation. Contenders train a part of an epoch in turn, so that
a busy machine slows all of them. Validations are not counted, and use the library's ranking for all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from recollect import RECIPES, EpisodicGraph, Facts, ModelConfig, TrainingRun, dataset
from recollect.evaluation.metrics import summarise
from recollect.evaluation.ranking import Scorer, rank
from recollect.graph.fact_index import FactIndex

MAX_EPOCHS = 60
ENDLESS = 10**6  # epochs
TEXTBOOK_NAME = "textbook TNTComplEx"
TEXTBOOK_DIM = 156
TEXTBOOK_BATCH = 1000
TEXTBOOK_WEIGHT = 1e-2  # of the nuclear 3-norm and of the smoothness

Result = dict[str, Any]  # seconds of training, curve of (epoch, seconds, MRR), seconds when the goal was reached


class TNTComplEx(nn.Module):
    """θ = Re ⟨a_s, a_p ⊙ a_t + b_p, conj(a_o)⟩; inverse predicates follow the others."""

    def __init__(self, sizes: Mapping[str, int], dim: int) -> None:
        super().__init__()
        self.dim, self.predicates = dim, sizes["predicate"]
        rows = (sizes["entity"], 2 * self.predicates, 2 * self.predicates, sizes["time"])
        self.tables = nn.ModuleList(nn.Embedding(count, 2 * dim) for count in rows)
        for parameter in self.parameters():
            parameter.data *= 1e-2

    def embed(self, table: int, ids: Tensor) -> Tensor:
        """Return complex embeddings: (B, dim)."""
        return torch.view_as_complex(self.tables[table](ids).view(-1, self.dim, 2))

    def whole_table(self, table: int) -> Tensor:
        """Return all complex embeddings of a table: (N, dim)."""
        weight: Any = self.tables[table].weight
        return torch.view_as_complex(weight.view(-1, self.dim, 2))

    def forward(self, s: Tensor, p: Tensor, t: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return scores of all entities, (B, N), and the factors to regularize, (B, dim) each."""
        subject, predicate, static, when = self.embed(0, s), self.embed(1, p), self.embed(2, p), self.embed(3, t)
        query = subject * (predicate * when + static)
        scores = torch.view_as_real(query).flatten(1) @ torch.view_as_real(self.whole_table(0)).flatten(1).T
        return scores, [subject.abs(), (predicate * when).abs(), static.abs()]

    @torch.no_grad()
    def score_against(self, facts: Facts, slot: str, candidates: Tensor | None = None) -> Tensor:
        """Return the scores of all entities in place of the subject or object: (B, N)."""
        s, p = (facts.s, facts.p) if slot == "o" else (facts.o, facts.p + self.predicates)
        scores: Tensor = self(s, p, facts.t)[0]
        return scores

    def score(self, facts: Facts) -> Tensor:
        """Return the score of each fact: (B,)."""
        return self.score_against(facts, "o").gather(1, facts.o[:, None])[:, 0]


@dataclass(frozen=True)
class Contender:
    """A training that advances by one batch per iteration."""

    scorer: Scorer
    steps: Iterator[int]  # yields the completed epochs after every batch
    validation: Callable[[], AbstractContextManager[None]] = nullcontext  # in which the scorer is validated


def textbook_contender(graph: EpisodicGraph) -> Contender:
    """Return the textbook model."""
    torch.manual_seed(0)
    model = TNTComplEx(graph.sizes, TEXTBOOK_DIM)
    return Contender(model, _textbook_steps(model, graph))


def _textbook_steps(model: TNTComplEx, graph: EpisodicGraph) -> Iterator[int]:
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    train, predicates = graph.split("train"), graph.sizes["predicate"]
    s, o = torch.cat([train.s, train.o]), torch.cat([train.o, train.s])
    p, t = torch.cat([train.p, train.p + predicates]), torch.cat([train.t, train.t])
    for epoch in range(ENDLESS):
        batches = torch.randperm(len(s)).split(TEXTBOOK_BATCH)
        for number, rows in enumerate(batches, 1):
            scores, factors = model(s[rows], p[rows], t[rows])
            answers = model.embed(0, o[rows]).abs()
            norm = torch.stack([factor.pow(3).sum() for factor in (*factors, answers)]).sum() / len(rows)
            times = model.whole_table(3)
            roughness = (times[1:] - times[:-1]).abs().pow(3).sum() / (len(times) - 1)
            loss = functional.cross_entropy(scores, o[rows]) + TEXTBOOK_WEIGHT * (norm + roughness)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield epoch + (number == len(batches))


def our_contender(graph: EpisodicGraph, config: ModelConfig, **options: Any) -> Contender:
    """Return a model with the modern recipe, changed by `options`, that never validates by itself."""
    recipe = replace(RECIPES["modern"], epochs=ENDLESS, validate_every=ENDLESS, candidates=512, **options)
    run = TrainingRun(graph.with_splits({"train": graph.split("train")}), config, recipe=recipe)

    return Contender(run.model, (record.epoch for record in run), run.trainer.average.applied)


def race_on_icews14(goal: float, turn: float, say: Callable[[str], None]) -> dict[str, Result]:
    """Train all contenders on ICEWS14 until they reach the goal."""
    graph = dataset("icews14")
    structure: dict[str, Any] = {"static": True, "reciprocal": True, "time_levels": (1, 5, 25)}
    cont = ModelConfig(model="cont", dim=80, predicate_dim=8, **structure)
    early = {"predict": {"s": 1.0, "o": 1.0}, "dropout": 0.0, "label_smoothing": 0.0}
    contenders = {
        TEXTBOOK_NAME: textbook_contender(graph),
        "TNTComplEx (ComplEx + static)": our_contender(
            graph, ModelConfig(model="complex", dim=200, **structure), penalty=3e-3
        ),
        "ConT + static": our_contender(graph, cont, **early),
    }
    return race(graph, contenders, goal, turn, say)


def race(
    graph: EpisodicGraph, contenders: Mapping[str, Contender], goal: float, turn: float, say: Callable[[str], None]
) -> dict[str, Result]:
    """Train in turns of `turn` seconds, and validate after every epoch until the goal is reached."""
    known = FactIndex(Facts.concat([graph.split("train"), graph.split("valid")]), graph.sizes)
    results: dict[str, Result] = {name: {"seconds": 0.0, "curve": [], "reached": None} for name in contenders}
    waiting = list(contenders)
    while waiting:
        for name in waiting:
            result = results[name]
            epoch = _train_turn(contenders[name], result, turn)
            if epoch > len(result["curve"]):
                mrr = _validate(contenders[name], graph.split("valid"), known)
                result["curve"].append([epoch, round(result["seconds"], 1), round(mrr, 4)])
                say(f"{name}: epoch {epoch}, {result['seconds'] / 60:.1f} min, valid MRR {mrr:.4f}")
                if mrr >= goal:
                    result["reached"] = round(result["seconds"], 1)
        waiting = [
            name for name in waiting if results[name]["reached"] is None and len(results[name]["curve"]) < MAX_EPOCHS
        ]
    return results


def _validate(contender: Contender, facts: Facts, known: FactIndex) -> float:
    """Return the filtered MRR of subjects and objects."""
    with contender.validation():
        return summarise([rank(contender.scorer, facts, slot, known=known)["filtered"] for slot in "so"])["mrr"]


def _train_turn(contender: Contender, result: Result, turn: float) -> int:
    """Train until the end of an epoch or of the turn; return the completed epochs."""
    start = time.perf_counter()
    for epoch in contender.steps:
        if epoch > len(result["curve"]) or time.perf_counter() - start > turn:
            break
    result["seconds"] += time.perf_counter() - start
    return epoch


def format_results(results: Mapping[str, Result]) -> list[str]:
    """Return one line per contender; a textbook that never reached the goal gives a lower bound of the ratio."""
    textbook = results[TEXTBOOK_NAME]
    bound = "" if textbook["reached"] else "at least "
    lines = []
    for name, result in results.items():
        if result["reached"] is None:
            lines.append(f"{name}: not in {MAX_EPOCHS} epochs, {result['seconds'] / 60:.1f} min")
        else:
            ratio = (textbook["reached"] or textbook["seconds"]) / result["reached"]
            lines.append(f"{name}: {result['reached'] / 60:.1f} min, {bound}{ratio:.1f} times as soon as the textbook")
    return lines
