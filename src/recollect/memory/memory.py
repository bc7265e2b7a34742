"""The class Memory: train, save, load, and answer questions by label with tables of labels."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from importlib.metadata import version
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
from recollect.memory.answers import answer_table, best_candidates, best_triples, check_scores
from recollect.memory.bundle import Bundle, malformed_refused, read_bundle, write_bundle
from recollect.memory.progress import ProgressBar
from recollect.memory.projection import SemanticStates
from recollect.memory.questions import (
    Table,
    Time,
    check_slots,
    parse_facts,
    parse_questions,
    slot_of_kind,
    slot_of_label,
)
from recollect.models.config import ModelConfig
from recollect.models.parameters import parameter_shapes
from recollect.models.semantic import plain_model
from recollect.models.tensor_model import TensorModel
from recollect.models.zoo import build_model, parse_model
from recollect.training.auto import resolve_config
from recollect.training.callbacks import Callback
from recollect.training.recipe import Recipe, parse_recipe
from recollect.training.run import TrainingRun

SAVED = ("recipe", "seed", "training", "projection")  # keys of a bundle's description that a memory keeps


class Memory:
    """A learned graph that answers who, what, whom and when.

    >>> from recollect import Memory, Recipe, dataset
    >>> graph = dataset("world", countries=4, years=1)
    >>> memory = Memory.learn(graph, model="distmult", dim=4, recipe=Recipe(epochs=2))
    >>> memory.recall(subject=graph.entities.labels[0], predicate="Visits", time="2000-05", top=3).columns
    ['object', 'score', 'probability', 'status']
    """

    def __init__(
        self, model: TensorModel, graph: EpisodicGraph, calibration: Calibration, about: Mapping[str, Any]
    ) -> None:
        """`about` says how the model was trained; it is saved with the memory."""
        self.model, self.graph, self.calibration, self.about = model, graph, calibration, dict(about)
        self.known = FactIndex(graph.facts, graph.sizes)  # the facts of all splits
        self._stored = FactIndex(model.normalize(graph.split("train")), graph.sizes)
        self._states = SemanticStates(model, graph)

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
        seed: int = 0,
        device: str = "cpu",
        progress: bool = False,
        callbacks: Iterable[Callback] = (),
    ) -> Memory:
        """Train a model on the train split and return its memory.

        The options of the model are those of `ModelConfig`; what is left out is chosen from the data and the recipe.
        The valid split, if there is one, selects the epoch and calibrates the probabilities. `progress` shows a bar on
        standard error; each callback receives every `Step` and `Epoch` record.
        """
        config, reason = resolve_config(
            graph, recipe if isinstance(recipe, Recipe) else parse_recipe(recipe),
            model=model, dim=dim, predicate_dim=predicate_dim, time_dim=time_dim, form=form, static=static,
            reciprocal=reciprocal, time_levels=time_levels, dtype=dtype,
        )  # fmt: skip
        run = TrainingRun(graph, config, recipe=recipe, seed=seed, device=device)
        receivers = list(callbacks)
        with ExitStack() as stack:
            if progress:
                bar = stack.enter_context(ProgressBar(run))
                if reason:
                    bar.progress.console.print(reason, markup=False)
                receivers.append(bar)
            for record in run:
                for receiver in receivers:
                    receiver.on_record(record)
        return cls.from_run(run)

    @classmethod
    def from_run(cls, run: TrainingRun) -> Memory:
        """Return the memory of a finished training run."""
        model, calibration, about = run.result()
        return cls(model, run.graph, calibration, about)

    @classmethod
    def load(cls, path: str | Path) -> Memory:
        """Return the memory that was saved at `path`, after its files have been checked."""
        bundle = read_bundle(Path(path))
        about = {name: bundle.about[name] for name in SAVED if name in bundle.about}
        with malformed_refused(path):
            model = _build(bundle.weights, bundle.graph, bundle.about)
            model.load_state_dict(bundle.weights)
            return cls(model, bundle.graph, _parse_calibration(bundle.about["calibration"]), about)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the memory to a directory that `Memory.load` reads."""
        versions = {name: version(name) for name in ("recollect", "torch")}
        about = {
            **self.model.config.to_dict(),
            **self.about,
            "calibration": {slot: list(fit) for slot, fit in self.calibration.fits.items()},
            "versions": {**versions, "python": platform.python_version()},
        }
        write_bundle(Path(path), Bundle(self.model.state_dict(), self.graph, about), overwrite=overwrite)

    def __repr__(self) -> str:
        config, sizes = self.model.config, self.graph.sizes
        form = config.form + (" + static" if config.static else "")
        return (
            f"Memory({type(self.model).__name__}, {form}, dim {config.dim}; {self.graph.name}: "
            f"{sizes['entity']:,} entities, {sizes['predicate']:,} predicates, {sizes['time']:,} times, "
            f"{len(self._stored.facts):,} facts)"
        )

    # -- answers ----------------------------------------------------------------------------------------------------

    def recall(
        self,
        *,
        subject: str | None = None,
        predicate: str | None = None,
        object: str | None = None,
        time: Time | None = None,
        top: int = 10,
    ) -> pl.DataFrame:
        """Return the `top` most likely labels of the one slot that is not given.

        Columns: the slot, `score` (the logit θ), the probability that it completes a true fact, and whether that fact
        was *stored* (trained on) or is *predicted*. The probability depends on the score alone and is calibrated over
        both: it is too high for predicted answers and too low for stored ones.
        """
        given = {"subject": subject, "predicate": predicate, "object": object, "time": time}
        answers = self.recall_many({name: [label] for name, label in given.items()}, top=top)
        known = ["query", *(name for name, label in given.items() if label is not None)]
        return answers.drop(known)

    def recall_many(self, questions: Table, *, top: int = 10) -> pl.DataFrame:
        """Return the `top` most likely answers to each row of a table of questions.

        Columns of the questions: subject, predicate, object, time; one of them is null, or left out, in each row, and
        different rows may leave different slots open. Columns of the answers: `query`, the number of the question from
        0, the fact with its open slot filled in, and score, probability and status as in `recall`.
        """
        check_process()
        facts, is_open = parse_questions(self.graph, self.model.slots, questions)
        answers, queries = [Facts.of([])], [torch.empty(0, dtype=torch.int64)]
        scores, probabilities = [torch.empty(0)], [torch.empty(0, dtype=torch.float64)]
        for slot in self.model.slots:
            rows = is_open[:, SLOTS.index(slot)].nonzero()[:, 0]
            if not len(rows):
                continue
            best = best_candidates(self.model, self.calibration, facts[rows], slot, top)
            repeated = rows.repeat_interleave(best.ids.shape[1])
            queries.append(repeated)
            answers.append(facts[repeated].with_slot(slot, best.ids.flatten()))
            scores.append(best.scores.flatten())
            probabilities.append(best.probabilities.flatten())
        query, order = torch.cat(queries).sort(stable=True)
        found = Facts.concat(answers)[order]
        labels: dict[str, list[Any]] = {"query": query.tolist(), **self._labels(found)}
        return answer_table(labels, torch.cat(scores)[order], torch.cat(probabilities)[order], self._is_stored(found))

    def probability(self, facts: Table, *, slot: str = "object") -> pl.DataFrame:
        """Return score, probability and status of given facts, one row each.

        The probability is that of `recall` if `slot` were open: it is calibrated for the candidates of that slot.
        """
        check_process()
        parsed, slot = parse_facts(self.graph, self.model.slots, facts), check_slots(self.model, parse_slot(slot))
        with torch.no_grad():
            scores = self.model.score_against(parsed, slot, parsed.column(slot)[:, None])[:, 0].cpu()
        check_scores(scores)
        probabilities = self.calibration.probability(scores, slot)
        return answer_table(self._labels(parsed), scores, probabilities, self._is_stored(parsed))

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
        progress: Callable[[float], None] | None = None,
    ) -> pl.DataFrame:
        """Return the `top` facts most likely to hold as of a time, by default the last, that have the given parts.

        Answers come from the semantic memory that the episodic one projects to; only facts of the train split are
        *stored* in it. The first question solves for the starts and ends of all facts, and calls `progress` with the
        share that is done.
        """
        check_process()
        given = {"s": subject, "p": predicate, "o": object}
        ids = {slot: self.graph.axis(slot).index(label) for slot, label in given.items() if label is not None}
        if self.model.config.form == "semantic":
            if as_of is not None:
                raise UserError("this is a semantic memory, which knows one time only; leave the time out")
            time, model, calibration = 0, plain_model(self.model), self.calibration
        else:
            time = self._time_index(as_of)
            model, calibration = self._states.at(time, progress)
        found, scores = best_triples(model, ids, top)
        labels = {SLOT_NAMES[slot]: self.graph.axis(slot).take(found.column(slot)) for slot in "spo"}
        stored = self._stored.contains(found.with_slot("t", time))
        return answer_table(labels, scores, calibration.probability(scores, "o"), stored)

    def project(self, as_of: Time | None = None, *, progress: Callable[[float], None] | None = None) -> Memory:
        """Return the semantic memory of what holds as of a time, by default the last."""
        check_process()
        if self.model.config.form == "semantic":
            raise UserError("this is a semantic memory already; project an episodic one")
        time = self._time_index(as_of)
        model, calibration = self._states.at(time, progress)
        splits = {name: facts[facts.t == time] for name, facts in self.graph.splits.items()}
        projection = {"as_of": self.graph.times.label(time), "model": self.model.config.to_dict()}
        return Memory(model, self.graph.with_splits(splits), calibration, self.about | {"projection": projection})

    # -- evaluation and embeddings ----------------------------------------------------------------------------------

    def evaluate(self, split: str = "test", slots: str | None = None) -> Evaluation:
        """Return filtered and raw ranking metrics of every slot, and the reliability of probabilities."""
        slots = check_slots(self.model, slots)
        facts = self.graph.split(split).true()
        if not len(facts):
            raise UserError(f"the {split} split of {self.graph.name} has no facts; choose another")
        with one_thread():
            metrics = evaluate(self.model, facts, known=self.known, slots=slots)
            reliability = reliability_report(
                self.model,
                self.model.normalize(facts),
                self.calibration,
                known=self.model.normalize_index(self.known),
                slots=slots,
                generator=seeded(0),
            )
        return Evaluation(split, len(facts), metrics["filtered"], metrics["raw"], reliability)

    def embedding(self, label: Time, kind: str | None = None) -> Tensor:
        """Return the learned embedding of an entity, predicate or time, in the shape of its table's rows.

        `kind` ("entity", "predicate" or "time") is needed only for a label of several kinds.
        """
        slot = check_slots(self.model, slot_of_label(self.graph, label) if kind is None else slot_of_kind(kind))
        index: int = self.graph.axis(slot).index(label)  # type: ignore[arg-type]
        return self.model.rows(slot, ids=torch.tensor([index]))[0].detach().cpu()

    def embeddings(self, kind: str = "entity") -> pl.DataFrame:
        """Return the learned embeddings of all entities, predicates or times: columns label and embedding (array)."""
        check_process()
        slot = check_slots(self.model, slot_of_kind(kind))
        rows = self.model.rows(slot).detach().cpu()
        return pl.DataFrame({"label": list(self.graph.axis(slot).labels), "embedding": rows.numpy()})

    def _labels(self, facts: Facts) -> dict[str, list[str]]:
        return {SLOT_NAMES[slot]: self.graph.axis(slot).take(facts.column(slot)) for slot in self.model.slots}

    def _is_stored(self, facts: Facts) -> Tensor:
        return self._stored.contains(self.model.normalize(facts))

    def _time_index(self, as_of: Time | None) -> int:
        """Return the index of a time, by default of the last."""
        return len(self.graph.times) - 1 if as_of is None else self.graph.times.index(as_of)


load = Memory.load


def _build(weights: Mapping[str, Tensor], graph: EpisodicGraph, about: Mapping[str, Any]) -> TensorModel:
    """Return the model of a bundle before its weights are loaded; raise ValueError if they do not fit it."""
    config = ModelConfig.from_dict(about)
    shapes = parameter_shapes(parse_model(config.model), config, graph.sizes)
    given = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if given != dict(shapes) or any(tensor.dtype != config.torch_dtype for tensor in weights.values()):
        raise ValueError("its weights do not have the shapes of its model")
    if not all(bool(tensor.isfinite().all()) for tensor in weights.values()):
        raise ValueError("its weights are not all finite numbers")
    return build_model(config, graph.sizes, generator=seeded(0))


def _parse_calibration(fits: Mapping[str, Any]) -> Calibration:
    calibration = Calibration({slot: (float(a), float(b)) for slot, (a, b) in fits.items()})
    for a, b in calibration.fits.values():
        if not (math.isfinite(a) and math.isfinite(b)):
            raise ValueError("its calibration is not all finite numbers")
    return calibration
