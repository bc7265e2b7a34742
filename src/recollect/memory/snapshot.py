"""The class Snapshot: the state of a memory at one moment, and its answers.

A snapshot never changes. A memory that learns something new takes another snapshot, so a question that has begun is
answered by what was known when it was asked. Indexes are built at the first question that needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import polars as pl
import torch
from torch import Tensor

from recollect.engine import one_thread
from recollect.errors import UserError, check_process
from recollect.evaluation.calibration import Calibration
from recollect.evaluation.metrics import Evaluation
from recollect.evaluation.ranking import Scorer
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import SLOT_NAMES, SLOTS, Facts, parse_slot
from recollect.graph.run_index import index_of
from recollect.graph.runs import Runs, split_runs, stored, stored_in
from recollect.history.history import History
from recollect.memory.answering.answers import (
    NO_ANSWERS,
    Answers,
    answer_table,
    best_answers,
    check_include,
    own_answers,
)
from recollect.memory.answering.explanations import explanations, model_shares, with_explanations
from recollect.memory.answering.forecast_table import forecast_table
from recollect.memory.answering.forecasts import Forecaster
from recollect.memory.answering.future import cannot_forecast, forecaster_at
from recollect.memory.answering.intervals import INSTANTS, when_table
from recollect.memory.answering.knowledge import Knowledge
from recollect.memory.answering.periods import (
    Period,
    PeriodQuestions,
    is_period,
    parse_period,
    question_groups,
    take_periods,
)
from recollect.memory.answering.questions import (
    Table,
    Time,
    check_slots,
    parse_facts,
    parse_questions,
    slot_of_kind,
    slot_of_label,
    steps_ahead,
)
from recollect.memory.answering.scorer import MemoryScorer, only_model
from recollect.memory.evaluating import (
    evaluate_forecasts,
    evaluate_memory,
    forecast_reliability,
    is_forecast,
    memory_reliability,
)
from recollect.memory.journal.changes import Delta
from recollect.memory.learning.growth import trace_growth
from recollect.memory.learning.learn import Learned

_Group = tuple[Tensor, Scorer | None, Calibration, History | Forecaster | None]


@dataclass(frozen=True)
class _Found:
    """Answers for one slot, and the source of evidence for them."""

    answers: Answers
    slot: str
    source: History | Forecaster | None
    is_period: bool = False  # whether the questions are about periods


class Snapshot:
    """What was learned, indexed for questions; `Memory` documents each of them."""

    def __init__(self, learned: Learned, index: FactIndex | None = None) -> None:
        """`index` is that of the stored facts, if there is one already."""
        self.learned = learned
        self.scorer, self.graph, self.calibration = learned.scorer, learned.graph, learned.calibration
        self.about = dict(learned.about)  # how the memory was learned
        self.forecaster = learned.forecaster  # answers about times after the last stored one
        self.intervals = learned.intervals  # predicts when facts held, of a graph of intervals
        self._stored = _stored_index(learned) if index is None else index
        self._knowledge = Knowledge(self.scorer, self.graph, self.calibration, self._stored)
        self._periods = PeriodQuestions(self.scorer, self.calibration, self._stored, self._knowledge)

    @cached_property
    def known(self) -> FactIndex:
        """The index of the facts of all splits."""
        return index_of(stored_in(self.graph, *self.graph.splits), self.graph.sizes)

    def grown(self, delta: Delta) -> Snapshot:
        """Return the snapshot after a change; this one stays as it is."""
        growth = trace_growth(self.learned, delta)
        return Snapshot(growth.learned, growth.graph.index(self._stored) if "t" in self.scorer.slots else None)

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
        """Return the `top` best labels of the one slot that is not given."""
        given = {"subject": subject, "predicate": predicate, "object": object, "time": time}
        questions = {name: [label] for name, label in given.items()}
        answers = self.recall_many(questions, top=top, include=include, explain=explain)
        known = ["query", *(name for name, label in given.items() if label is not None)]
        dropped = known[:-1] if is_period(self.graph.times, time) else known
        return _without(answers, dropped)

    @one_thread()  # many small steps: to wake other threads for each takes a busy machine several milliseconds
    def recall_many(self, questions: Table, *, top: int = 10, include: str = "all", explain: int = 0) -> pl.DataFrame:
        """Return the `top` best answers to each row of a table of questions."""
        check_process()
        check_include(include)
        table, periods = take_periods(self.graph.times, questions, ahead=steps_ahead(self.graph))
        facts, is_open = parse_questions(self.graph, self.scorer.slots, table)
        found: list[_Found] = []
        for slot in self.scorer.slots:
            for rows, period in question_groups(is_open[:, SLOTS.index(slot)], periods):
                asked = self.scorer.normalize(facts[rows])
                for places, answers, source in self._answer(asked, rows, slot, period, top, include):
                    numbered = replace(answers, query=places[answers.query])
                    found.append(_Found(numbered, slot, source, is_period=period is not None))
        return self._table(found, explain)

    def probability(self, facts: Table, *, slot: str = "object", explain: int = 0) -> pl.DataFrame:
        """Return score, probability and status of given facts, one row each."""
        check_process()
        parsed, slot = parse_facts(self.graph, self.scorer.slots, facts), self._check_slots(parse_slot(slot))
        asked = self.scorer.normalize(parsed)
        found: list[_Found] = []
        for rows, scorer, calibration, source in self._by_scorer(asked, slot, "stored"):
            if scorer is not None:
                columns = own_answers(scorer, calibration, self._stored, asked[rows], slot)
            elif bool(self._stored.contains(asked[rows]).all()):
                columns = torch.tensor([[torch.nan], [1.0], [1.0]], dtype=torch.float64).expand(-1, len(rows))
            else:
                raise cannot_forecast(self.graph, int(asked.t[rows[0]]))
            scores, probabilities, is_stored = columns
            found.append(_Found(Answers(rows, asked[rows], scores, probabilities, is_stored.bool()), slot, source))
        return _without(self._table(found, explain), ["query"])

    def probabilities(self, subject: str, predicate: str, object: str) -> pl.DataFrame:
        """Return the probability of a triple at every time, in order of time."""
        table = self.recall(subject=subject, predicate=predicate, object=object, top=len(self.graph.times))
        order = pl.DataFrame({"time": self.graph.times.labels})
        return order.join(table, on="time", how="left", maintain_order="left")

    def when(self, subject: str, predicate: str, object: str) -> pl.DataFrame:
        """Return the intervals in which a fact held: start, end, probability and status."""
        check_process()
        self._check_slots("t")
        table = {"subject": [subject], "predicate": [predicate], "object": [object]}
        triple, _ = parse_questions(self.graph, self.scorer.slots, table)
        predictor = self.intervals or INSTANTS
        return when_table(predictor, self.scorer, self.calibration, self.graph, self._stored, triple)

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
        """Return what holds as of a time, by default the last, among the facts with the given parts, at most `top`."""
        check_process()
        check_include(include)
        given = {"s": subject, "p": predicate, "o": object}
        ids = {slot: self.graph.axis(slot).index(label) for slot, label in given.items() if label is not None}
        time = self.time_of(as_of)
        if not self._is_future(time):
            found = self._knowledge.ask(time, ids, top, include, progress)
        else:
            found = self._knowledge.ask(time, ids, 0 if include == "predicted" else top, "stored")
            forecaster = forecaster_at(self.forecaster, self.graph, time, include)
            if forecaster is not None and include != "stored":
                predicted = forecaster.ask(time, ids, top - len(found.facts), self._stored)
                found = Answers.concat([found, predicted])
        return answer_table(self._labels(found.facts, "spo"), found.scores, found.probabilities, found.stored)

    def forecast(
        self,
        *,
        subject: str | None = None,
        predicate: str | None = None,
        object: str | None = None,
        horizon: int = 7,
        top: int = 10,
        explain: int = 0,
    ) -> pl.DataFrame:
        """Return the `top` likeliest facts with the given parts in each of the next `horizon` steps."""
        check_process()
        given = {"s": subject, "p": predicate, "o": object}
        ids = {slot: self.graph.axis(slot).index(label) for slot, label in given.items() if label is not None}
        if self.forecaster is None:
            raise cannot_forecast(self.graph, len(self.graph.times))
        return forecast_table(self.forecaster, self.graph, ids, horizon, top, explain)

    def projected(self, as_of: Time | None = None, progress: Callable[[float], None] | None = None) -> Learned:
        """Return the semantic memory of what holds as of a time, by default the last."""
        check_process()
        model = only_model(self.scorer)
        if model.config.form == "semantic":
            raise UserError("this is a semantic memory already; project an episodic one")
        time = self.time_of(as_of)
        if time >= len(self.graph.times):
            raise self.graph.times.off_axis(str(as_of))
        semantic, calibration = self._knowledge.semantic_at(time, progress)
        splits = {name: part.at(time) for name, part in split_runs(self.graph).items()}
        projection = {"as_of": self.graph.times.label(time), "model": model.config.to_dict()}
        scorer, about = MemoryScorer((semantic,), None, {}), self.about | {"projection": projection}
        return Learned(scorer, self.graph.with_splits(splits), calibration, about)

    def evaluate(self, split: str = "test", slots: str | None = None) -> Evaluation:
        """Return filtered and raw ranking metrics of every slot, and the reliability of probabilities."""
        checked = None if slots is None else self._check_slots(slots)
        if self.forecaster is not None and is_forecast(self.forecaster, self.graph, split):
            return evaluate_forecasts(self.forecaster, self.graph, known=self.known, split=split, slots=checked)
        return evaluate_memory(
            self.scorer, self.calibration, self.graph, known=self.known, stored=self._stored, split=split,
            slots=checked or self.scorer.slots, intervals=self.intervals,
        )  # fmt: skip

    def reliability(self, split: str = "test") -> dict[str, dict[str, Any]]:
        """Return, by slot, how reliable probabilities are; empty if the split has no facts."""
        if not self.graph.counts.get(split):
            return {}
        if self.forecaster is not None and is_forecast(self.forecaster, self.graph, split):
            return forecast_reliability(self.forecaster, self.graph, known=self.known, split=split)
        return memory_reliability(
            self.scorer, self.calibration, self.graph, known=self.known, stored=self._stored, split=split,
            slots=self.scorer.slots,
        )  # fmt: skip

    def embedding(self, label: Time, kind: str | None = None) -> Tensor:
        """Return the learned embedding of an entity, predicate or time, in the shape of its table's rows."""
        slot = self._check_slots(slot_of_label(self.graph, label) if kind is None else slot_of_kind(kind))
        index: int = self.graph.axis(slot).index(label)  # type: ignore[arg-type]
        return only_model(self.scorer).rows(slot, ids=torch.tensor([index]))[0].detach().cpu()

    def embeddings(self, kind: str = "entity") -> pl.DataFrame:
        """Return the learned embeddings of all entities, predicates or times: columns label and embedding (array)."""
        check_process()
        slot = self._check_slots(slot_of_kind(kind))
        rows = only_model(self.scorer).rows(slot).detach().cpu()
        return pl.DataFrame({"label": list(self.graph.axis(slot).labels), "embedding": rows.numpy()})

    def example(self) -> dict[str, str] | None:
        """Return the labels of one stored fact, by name, to show what can be asked; None if there is none."""
        facts = split_runs(self.graph)["train"].true().first
        middle = len(facts) // 2
        if not len(facts):
            return None
        return {name: labels[0] for name, labels in self._labels(facts[middle : middle + 1]).items()}

    @property
    def runs(self) -> Runs:
        """The runs of the stored facts."""
        return self._knowledge.runs

    def runs_of(self, entity: str) -> int:
        """Return the number of stored runs that have an entity as subject or object."""
        number, facts = self.graph.entities.index(entity), self.runs.first
        return int(((facts.s == number) | (facts.o == number)).sum())

    def _table(self, found: list[_Found], explain: int) -> pl.DataFrame:
        """Return answers in the order of their questions, with `explain` reasons each."""
        answers = Answers.concat([NO_ANSWERS, *(each.answers for each in found)])
        labels: dict[str, list[Any]] = {"query": answers.query.tolist(), **self._labels(answers.facts)}
        filled = answer_table(labels, answers.scores, answers.probabilities, answers.stored)
        if not explain:
            return filled
        reasons, shares = [], list[float | None]()
        for each in found:
            reasons += explanations(each.source, self.graph, each.answers, each.slot, explain)
            if each.is_period or each.source is not self.scorer.history:
                shares += [None] * len(each.answers.query)
            else:
                shares += model_shares(self.scorer, each.answers, each.slot)
        query = torch.cat([NO_ANSWERS.query, *(each.answers.query for each in found)])
        return with_explanations(filled, reasons, shares, query)

    def _labels(self, facts: Facts, slots: str | None = None) -> dict[str, list[str]]:
        slots = self.scorer.slots if slots is None else slots
        return {SLOT_NAMES[slot]: self.graph.axis(slot).take(facts.column(slot)) for slot in slots}

    def _check_slots(self, slots: str | None) -> str:
        return check_slots(self.scorer.slots, slots)

    def time_of(self, as_of: Time | None) -> int:
        """Return the index of a time, by default of the last that is stored; of a period, that of its last time."""
        if "t" not in self.scorer.slots:
            if as_of is not None:
                raise UserError("this is a semantic memory, which knows one time only; leave the time out")
            return 0
        if as_of is None:
            return len(self.graph.times) - 1 if self.forecaster is None else max(0, self.forecaster.last)
        return parse_period(self.graph.times, as_of, ahead=steps_ahead(self.graph)).last

    def _is_future(self, time: int) -> bool:
        """Return whether a time is answered by forecasts: it is after the last stored one, or not on the axis."""
        return time > (len(self.graph.times) - 1 if self.forecaster is None else self.forecaster.last)

    def _answer(
        self, asked: Facts, rows: Tensor, slot: str, period: Period | None, top: int, include: str
    ) -> Iterator[tuple[Tensor, Answers, History | Forecaster | None]]:
        """Yield the answers to questions by what answers them: some of `rows`, answers, source of evidence."""
        if period is not None and not self._is_future(period.first):
            yield rows, self._periods.ask(asked, slot, period, top, include), self.scorer.history
            return
        if period is not None:  # what is stored then holds throughout; predictions are surest at the first time
            asked = asked.with_slot("t", period.first)
        for chosen, scorer, calibration, source in self._by_scorer(asked, slot, include):
            if scorer is None:
                found = self._knowledge.stored_answers(asked[chosen], slot, 0 if include == "predicted" else top)
            else:
                found = best_answers(scorer, calibration, self._stored, asked[chosen], slot, top, include)
            if period is not None:
                found = replace(found, facts=found.facts.with_slot("t", period.times_of(found.stored)))
            yield rows[chosen], found, source

    def _by_scorer(self, facts: Facts, slot: str, include: str = "all") -> Iterator[_Group]:
        """Yield questions by what answers them: their rows (n,), scorer, calibration and source of evidence.

        Without a scorer, only what is stored is known.
        """
        times = facts.t
        has_times = slot != "t" and "t" in self.scorer.slots
        future = torch.tensor([has_times and self._is_future(time) for time in times.tolist()], dtype=torch.bool)
        rows = (~future).nonzero()[:, 0]
        if len(rows):
            yield rows, self.scorer, self.calibration, self.scorer.history
        for time in times[future].unique().tolist():
            forecaster = forecaster_at(self.forecaster, self.graph, time, include)
            calibration = self.calibration if forecaster is None else forecaster.calibration_at(time)
            yield (times == time).nonzero()[:, 0], forecaster, calibration, forecaster


def _without(table: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Return the other columns of a table; its own `drop` would wake another thread."""
    return table[[name for name in table.columns if name not in names]]


def _stored_index(learned: Learned) -> FactIndex:
    """Return the index of the train split, of a semantic memory without times."""
    return learned.scorer.normalize_index(index_of(stored(learned.graph, "train"), learned.graph.sizes))
