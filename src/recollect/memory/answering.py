"""Answer questions by label from a memory's store, its scorer and its calibration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import polars as pl
import torch

from recollect.errors import UserError, check_process
from recollect.evaluation.calibration import Calibration
from recollect.graph.facts import SLOT_NAMES, SLOTS, EpisodicGraph, Facts, parse_slot
from recollect.graph.run_index import index_of
from recollect.graph.runs import Runs, stored, stored_in
from recollect.memory.answers import (
    NO_ANSWERS,
    Answers,
    answer_table,
    best_answers,
    check_include,
    check_scores,
)
from recollect.memory.explanations import explanations, with_explanations
from recollect.memory.knowledge import Knowledge
from recollect.memory.periods import PeriodQuestions, is_period, parse_period, question_groups, take_periods
from recollect.memory.questions import Table, Time, check_slots, parse_facts, parse_questions
from recollect.memory.scorer import MemoryScorer


class Answering:
    """What a memory can be asked: any missing part of a fact, and what held at a time."""

    def __init__(
        self, scorer: MemoryScorer, graph: EpisodicGraph, calibration: Calibration, about: Mapping[str, Any]
    ) -> None:
        """`about` says how the memory was learned; it is saved with it."""
        self.scorer, self.graph, self.calibration, self.about = scorer, graph, calibration, dict(about)
        self.known = index_of(stored_in(graph, *graph.splits), graph.sizes)  # the facts of all splits
        train = stored(graph, "train")
        if "t" not in scorer.slots:
            train = scorer.normalize(train.first if isinstance(train, Runs) else train)
        self._stored = index_of(train, graph.sizes)
        self._knowledge = Knowledge(scorer, graph, calibration, self._stored)
        self._periods = PeriodQuestions(scorer, calibration, self._stored, self._knowledge)

    def recall(
        self,
        *,
        subject: str | None = None,
        predicate: str | None = None,
        object: str | None = None,
        time: Time | None = None,
        top: int = 10,
        include: str = "all",
        explain: int = 0,
    ) -> pl.DataFrame:
        """Return the `top` best labels of the one slot that is not given.

        Columns: the slot, `score`, the probability that it completes a true fact, and whether that fact is *stored* or
        *predicted*. Stored facts come first, with probability 1, of several times the newest first. The probability of
        predicted ones is calibrated on facts that are not stored. `include` is "all", "stored" or "predicted".
        With `explain=n` there is a column `why`: the n stored facts with the largest shares of the history's evidence.

        A time coarser than the grain ("2014-12" of days) or a range ("1914..1918") asks about the whole period. Stored
        is then what holds at any time of it. The column `time` is the last such time, or the likeliest one of a
        predicted answer, whose probability is that of this time.
        """
        given = {"subject": subject, "predicate": predicate, "object": object, "time": time}
        questions = {name: [label] for name, label in given.items()}
        answers = self.recall_many(questions, top=top, include=include, explain=explain)
        known = ["query", *(name for name, label in given.items() if label is not None)]
        return answers.drop(known[:-1] if is_period(self.graph.times, time) else known)

    def recall_many(self, questions: Table, *, top: int = 10, include: str = "all", explain: int = 0) -> pl.DataFrame:
        """Return the `top` best answers to each row of a table of questions.

        Columns of the questions: subject, predicate, object, time; one of them is null, or left out, in each row, and
        different rows may leave different slots open. Columns of the answers: `query`, the number of the question from
        0, the fact with its open slot filled in, and score, probability and status as in `recall`.
        """
        check_process()
        check_include(include)
        table, periods = take_periods(self.graph.times, questions)
        facts, is_open = parse_questions(self.graph, self.scorer.slots, table)
        parts, reasons = [NO_ANSWERS], []
        for slot in self.scorer.slots:
            for rows, period in question_groups(is_open[:, SLOTS.index(slot)], periods):
                asked = self.scorer.normalize(facts[rows])
                if period is None:
                    found = best_answers(self.scorer, self.calibration, self._stored, asked, slot, top, include)
                else:
                    found = self._periods.ask(asked, slot, period, top, include)
                parts.append(replace(found, query=rows[found.query]))
                if explain:
                    reasons += explanations(self.scorer, self.graph, found, slot, explain)
        answers = Answers.concat(parts)
        labels: dict[str, list[Any]] = {"query": answers.query.tolist(), **self._labels(answers.facts)}
        filled = answer_table(labels, answers.scores, answers.probabilities, answers.stored)
        return with_explanations(filled, reasons, torch.cat([part.query for part in parts])) if explain else filled

    def probability(self, facts: Table, *, slot: str = "object") -> pl.DataFrame:
        """Return score, probability and status of given facts, one row each.

        The probability is that of `recall` if `slot` were open: it is calibrated for the candidates of that slot.
        """
        check_process()
        parsed, slot = parse_facts(self.graph, self.scorer.slots, facts), self._check_slots(parse_slot(slot))
        own, rows = parsed.column(slot), torch.arange(len(parsed))
        scores = self.scorer.score_against(self.scorer.normalize(parsed), slot).cpu().double()
        check_scores(scores)
        is_stored = self._stored.mask(self.scorer.normalize(parsed), slot)
        probabilities = self.calibration.answer_probabilities(scores, is_stored, slot)
        return answer_table(self._labels(parsed), scores[rows, own], probabilities[rows, own], is_stored[rows, own])

    def probabilities(self, subject: str, predicate: str, object: str) -> pl.DataFrame:
        """Return the probability of a triple at every time, in order of time."""
        table = self.recall(subject=subject, predicate=predicate, object=object, top=len(self.graph.times))
        order = pl.DataFrame({"time": self.graph.times.labels})
        return order.join(table, on="time", how="left", maintain_order="left")

    def know(
        self,
        *,
        subject: str | None = None,
        predicate: str | None = None,
        object: str | None = None,
        as_of: Time | None = None,
        top: int = 10,
        include: str = "all",
        progress: Callable[[float], None] | None = None,
    ) -> pl.DataFrame:
        """Return what holds as of a time, by default the last, among the facts with the given parts, at most `top`.

        A time coarser than the grain, or a range, is a period; what holds at its last time is returned.

        Stored facts come first, with probability 1, those that began last before the others. Predicted ones follow by
        probability: what is likely to hold though it was never stored. A memory without history asks the semantic
        memory that it projects to; its first question solves for the starts and ends of all facts, and calls
        `progress` with the share that is done.
        """
        check_process()
        check_include(include)
        given = {"s": subject, "p": predicate, "o": object}
        ids = {slot: self.graph.axis(slot).index(label) for slot, label in given.items() if label is not None}
        if "t" not in self.scorer.slots and as_of is not None:
            raise UserError("this is a semantic memory, which knows one time only; leave the time out")
        time = 0 if "t" not in self.scorer.slots else self._time_index(as_of)
        found = self._knowledge.ask(time, ids, top, include, progress)
        return answer_table(self._labels(found.facts, "spo"), found.scores, found.probabilities, found.stored)

    def _labels(self, facts: Facts, slots: str | None = None) -> dict[str, list[str]]:
        slots = self.scorer.slots if slots is None else slots
        return {SLOT_NAMES[slot]: self.graph.axis(slot).take(facts.column(slot)) for slot in slots}

    def _check_slots(self, slots: str | None) -> str:
        return check_slots(self.scorer.slots, slots)

    def _time_index(self, as_of: Time | None) -> int:
        """Return the index of a time, by default of the last; of a period, that of its last time."""
        return len(self.graph.times) - 1 if as_of is None else parse_period(self.graph.times, as_of).last
