"""Questions of the stream study: reciprocal filtered ranks of facts, and which of them have new entities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import torch

from paper.stream_world import Stream
from recollect import Facts
from recollect.evaluation.calibration import Calibration
from recollect.evaluation.ranking import Scorer, rank
from recollect.evaluation.reliability import reliability_report
from recollect.graph.fact_index import FactIndex
from recollect.graph.seeds import seeded

DIGITS = 6  # of a stored reciprocal rank
GROUPS = {"0": (0, 0), "1": (1, 1), "2–4": (2, 4), "≥ 5": (5, 10**9)}  # facts of a new entity seen so far
ASKED = {"who": "so", "what": "p", "when": "t"}

Ranks = dict[str, list[float]]  # slot -> reciprocal ranks, in the order of the facts


def reciprocal_ranks(scorer: Scorer, facts: Facts, slots: str, known: FactIndex) -> Ranks:
    """Return the reciprocal filtered ranks of facts by slot; ties count half."""
    found = {}
    for slot in slots:
        ranks = rank(scorer, facts, slot, known=known)["filtered"].ranks()
        found[slot] = [round(value, DIGITS) for value in ranks.reciprocal().tolist()]
    return found


def mean_ranks(ranks: list[Ranks]) -> dict[str, float]:
    """Return the mean reciprocal rank of who, what and when, as far as they were asked."""
    found = {}
    for name, slots in ASKED.items():
        values = [value for each in ranks for slot in slots for value in each.get(slot, [])]
        if values:
            found[name] = fmean(values)
    return found


def summary(pieces: list[dict[str, Any]], questions: Sequence[str]) -> dict[str, Any]:
    """Return the mean reciprocal ranks of each kind of question over all pieces, and the mean of CPU-seconds."""
    found: dict[str, Any] = {name: mean_ranks([piece[name] for piece in pieces if name in piece]) for name in questions}
    return found | {"cpu_seconds": fmean(piece["cpu_seconds"] for piece in pieces)}


def difference(pieces: list[dict[str, Any]], others: list[dict[str, Any]]) -> dict[str, float]:
    """Return by how much the reciprocal ranks of withheld who exceed others of the same questions, and its error."""
    gains = [
        value - other
        for piece, other_piece in zip(pieces, others, strict=True)
        for slot in ASKED["who"]
        for value, other in zip(piece["withheld"][slot], other_piece["withheld"][slot], strict=True)
    ]
    return {"questions": len(gains), "mean": fmean(gains), "error": stdev(gains) / len(gains) ** 0.5}


def by_group(pieces: dict[str, list[dict[str, Any]]], name: str) -> dict[str, dict[str, Any]]:
    """Return the mean reciprocal ranks of each system by number of facts seen of a new entity."""
    found: dict[str, dict[str, Any]] = {}
    for group in GROUPS:
        for role in ("asked", "given"):
            values = {
                system: [value for piece in parts for value in piece[name][group][role]]
                for system, parts in pieces.items()
            }
            questions = len(next(iter(values.values())))
            means = {system: fmean(each) if each else None for system, each in values.items()}
            found[f"{group}, {role}"] = {"questions": questions, **means}
    return found


@dataclass(frozen=True)
class NewEntity:
    """How often the rarest new entity of a fact was seen, by fact, and whether it is subject or object."""

    seen: list[int | None]  # None for a fact without a new entity
    subject: list[bool]
    object: list[bool]

    @classmethod
    def of(cls, stream: Stream, facts: Facts, count: int) -> NewEntity:
        """Return it for questions that are asked after so many days are learned."""
        first_new = stream.sizes(0)["entity"]
        learned = stream.learned(count)
        size = int(max(facts.ids[:, [0, 2]].max(), learned.ids[:, [0, 2]].max())) + 1
        facts_of = torch.bincount(learned.s, minlength=size) + torch.bincount(learned.o, minlength=size)
        is_new = facts.ids[:, [0, 2]] >= first_new
        counts = facts_of[facts.ids[:, [0, 2]]].masked_fill(~is_new, 10**9).min(dim=1).values
        seen = [int(number) if new else None for number, new in zip(counts, is_new.any(dim=1), strict=True)]
        return cls(seen, is_new[:, 0].tolist(), is_new[:, 1].tolist())

    def group(self, ranks: Ranks) -> dict[str, dict[str, list[float]]]:
        """Return reciprocal ranks by number of facts seen: where the new entity is asked for, and where it is given."""
        found: dict[str, dict[str, list[float]]] = {name: {"asked": [], "given": []} for name in GROUPS}
        for number, seen in enumerate(self.seen):
            if seen is None:
                continue
            name = next(name for name, (low, high) in GROUPS.items() if low <= seen <= high)
            for slot, is_new in (("s", self.subject[number]), ("o", self.object[number])):
                found[name]["asked" if is_new else "given"].append(ranks[slot][number])
        return found


def calibration_errors(
    scorer: Scorer, calibration: Calibration, facts: Facts, *, known: FactIndex, stored: FactIndex
) -> dict[str, Any]:
    """Return how far calibrated probabilities are from the shares that are true, by slot."""
    report = reliability_report(
        scorer, facts, calibration, known=known, slots="spot", generator=seeded(0), stored=stored
    )
    metrics = ("expected_error", "likely_error", "brier", "log_loss")
    return {slot: {metric: found["after"][metric] for metric in metrics} for slot, found in report.items()}
