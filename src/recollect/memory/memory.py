"""The class Memory: train, save, load, and answer questions by label with tables of labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch import Tensor

from recollect.engine import one_thread
from recollect.errors import UserError, check_process
from recollect.evaluation.calibration import Calibration, reliability_report
from recollect.evaluation.metrics import Evaluation, evaluate
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import SLOT_NAMES, SLOTS, EpisodicGraph, Facts, parse_slot
from recollect.graph.seeds import seeded
from recollect.memory.answers import (
    NO_ANSWERS,
    Answers,
    answer_table,
    best_answers,
    check_include,
    check_scores,
)
from recollect.memory.bundle import malformed_refused, read_bundle, write_bundle
from recollect.memory.explanations import explanations, with_explanations
from recollect.memory.knowledge import Knowledge
from recollect.memory.learning import HISTORY, Learned, finish_run, learn_history, run_training
from recollect.memory.periods import PeriodQuestions, is_period, parse_period, question_groups, take_periods
from recollect.memory.questions import (
    Table,
    Time,
    check_slots,
    parse_facts,
    parse_questions,
    slot_of_kind,
    slot_of_label,
)
from recollect.memory.saved import read_learned, to_bundle
from recollect.memory.scorer import MemoryScorer
from recollect.models.tensor_model import TensorModel
from recollect.training.auto import resolve_config
from recollect.training.callbacks import Callback
from recollect.training.recipe import Recipe, parse_recipe
from recollect.training.run import TrainingRun


class Memory:
    """A learned graph that answers who, what, whom and when.

    >>> from recollect import Memory, Recipe, dataset
    >>> graph = dataset("world", countries=4, years=1)
    >>> memory = Memory.learn(graph, model="distmult", dim=4, recipe=Recipe(epochs=2))
    >>> memory.recall(subject=graph.entities.labels[0], predicate="Visits", time="2000-05", top=3).columns
    ['object', 'score', 'probability', 'status']
    """

    def __init__(
        self, scorer: MemoryScorer, graph: EpisodicGraph, calibration: Calibration, about: Mapping[str, Any]
    ) -> None:
        """`about` says how the memory was learned; it is saved with it."""
        self.scorer, self.graph, self.calibration, self.about = scorer, graph, calibration, dict(about)
        self.known = FactIndex(graph.facts, graph.sizes)  # the facts of all splits
        self._stored = FactIndex(self.scorer.normalize(graph.split("train")), graph.sizes)
        self._knowledge = Knowledge(scorer, graph, calibration, self._stored)
        self._periods = PeriodQuestions(scorer, calibration, self._stored, self._knowledge)

    @property
    def model(self) -> TensorModel:
        """The model; a memory of history alone has none."""
        if self.scorer.model is None:
            raise UserError("this memory is history alone and has no model; learn one with model='auto'")
        return self.scorer.model

    @classmethod
    def learn(
        cls,
        graph: EpisodicGraph,
        *,
        model: str = "auto",
        dim: int | None = None,
        predicate_dim: int | None = None,
        time_dim: int | None = None,
        form: str = "episodic",
        static: bool | None = None,
        reciprocal: bool | None = None,
        time_levels: tuple[int, ...] | None = None,
        dtype: str = "float32",
        recipe: Recipe | str = "modern",
        history: bool = True,
        seed: int = 0,
        device: str = "cpu",
        progress: bool = False,
        callbacks: Iterable[Callback] = (),
    ) -> Memory:
        """Train a model on the train split and return its memory; `model="history"` needs no training.

        The options of the model are those of `ModelConfig`; what is left out is chosen from the data and the recipe.
        The valid split, if there is one, selects the epoch, weighs model and history and calibrates the probabilities.
        `history=False` answers by the model alone. `progress` shows a bar on standard error; each callback receives
        every `Step` and `Epoch` record.
        """
        if model.lower() == HISTORY:
            return cls.of(learn_history(graph, seed=seed))
        config, reason = resolve_config(
            graph, recipe if isinstance(recipe, Recipe) else parse_recipe(recipe),
            model=model, dim=dim, predicate_dim=predicate_dim, time_dim=time_dim, form=form, static=static,
            reciprocal=reciprocal, time_levels=time_levels, dtype=dtype,
        )  # fmt: skip
        run = TrainingRun(graph, config, recipe=recipe, seed=seed, device=device)
        run_training(run, reason, progress=progress, callbacks=callbacks)
        return cls.from_run(run, history=history)

    @classmethod
    def from_run(cls, run: TrainingRun, *, history: bool = True) -> Memory:
        """Return the memory of a finished training run; with `history`, it also reads the facts around a question."""
        return cls.of(finish_run(run, history=history))

    @classmethod
    def of(cls, learned: Learned) -> Memory:
        """Return the memory of what was learned."""
        return cls(learned.scorer, learned.graph, learned.calibration, learned.about)

    @classmethod
    def load(cls, path: str | Path) -> Memory:
        """Return the memory that was saved at `path`, after its files have been checked."""
        bundle = read_bundle(Path(path))
        with malformed_refused(path):
            return cls.of(read_learned(bundle))

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the memory to a directory that `Memory.load` reads."""
        learned = Learned(self.scorer, self.graph, self.calibration, self.about)
        write_bundle(Path(path), to_bundle(learned), overwrite=overwrite)

    def __repr__(self) -> str:
        sizes = self.graph.sizes
        counts = f"{sizes['entity']:,} entities, {sizes['predicate']:,} predicates, {sizes['time']:,} times"
        return f"Memory({self.scorer}; {self.graph.name}: {counts}, {len(self._stored.facts):,} facts)"

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
        stored = self._stored.mask(self.scorer.normalize(parsed), slot)
        probabilities = self.calibration.answer_probabilities(scores, stored, slot)
        return answer_table(self._labels(parsed), scores[rows, own], probabilities[rows, own], stored[rows, own])

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

    def project(self, as_of: Time | None = None, *, progress: Callable[[float], None] | None = None) -> Memory:
        """Return the semantic memory of what holds as of a time, by default the last."""
        check_process()
        if self.model.config.form == "semantic":
            raise UserError("this is a semantic memory already; project an episodic one")
        time = self._time_index(as_of)
        model, calibration = self._knowledge.semantic_at(time, progress)
        splits = {name: facts[facts.t == time] for name, facts in self.graph.splits.items()}
        projection = {"as_of": self.graph.times.label(time), "model": self.model.config.to_dict()}
        scorer, about = MemoryScorer(model, None, {}), self.about | {"projection": projection}
        return Memory(scorer, self.graph.with_splits(splits), calibration, about)

    # -- evaluation and embeddings ----------------------------------------------------------------------------------

    def evaluate(self, split: str = "test", slots: str | None = None) -> Evaluation:
        """Return filtered and raw ranking metrics of every slot, and the reliability of probabilities."""
        slots = self._check_slots(slots)
        facts = self.graph.split(split).true()
        if not len(facts):
            raise UserError(f"the {split} split of {self.graph.name} has no facts; choose another")
        with one_thread():
            metrics = evaluate(self.scorer.ranked, facts, known=self.known, slots=slots)
            reliability = reliability_report(
                self.scorer,
                self.scorer.normalize(facts),
                self.calibration,
                known=self.scorer.normalize_index(self.known),
                slots=slots,
                generator=seeded(0),
                stored=self._stored if self.calibration.among_predicted else None,
            )
        return Evaluation(split, len(facts), metrics["filtered"], metrics["raw"], reliability)

    def embedding(self, label: Time, kind: str | None = None) -> Tensor:
        """Return the learned embedding of an entity, predicate or time, in the shape of its table's rows.

        `kind` ("entity", "predicate" or "time") is needed only for a label of several kinds.
        """
        slot = self._check_slots(slot_of_label(self.graph, label) if kind is None else slot_of_kind(kind))
        index: int = self.graph.axis(slot).index(label)  # type: ignore[arg-type]
        return self.model.rows(slot, ids=torch.tensor([index]))[0].detach().cpu()

    def embeddings(self, kind: str = "entity") -> pl.DataFrame:
        """Return the learned embeddings of all entities, predicates or times: columns label and embedding (array)."""
        check_process()
        slot = self._check_slots(slot_of_kind(kind))
        rows = self.model.rows(slot).detach().cpu()
        return pl.DataFrame({"label": list(self.graph.axis(slot).labels), "embedding": rows.numpy()})

    def _labels(self, facts: Facts, slots: str | None = None) -> dict[str, list[str]]:
        slots = self.scorer.slots if slots is None else slots
        return {SLOT_NAMES[slot]: self.graph.axis(slot).take(facts.column(slot)) for slot in slots}

    def _check_slots(self, slots: str | None) -> str:
        return check_slots(self.scorer.slots, slots)

    def _time_index(self, as_of: Time | None) -> int:
        """Return the index of a time, by default of the last; of a period, that of its last time."""
        return len(self.graph.times) - 1 if as_of is None else parse_period(self.graph.times, as_of).last


load = Memory.load
