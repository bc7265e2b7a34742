"""A memory: labels in, labelled tables out."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.evaluation.metrics import Calibration, evaluate, platt, reliability_report
from recollect.graph.episodes import ends, starts
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import SLOT_NAMES, SLOTS, EpisodicGraph, Facts, parse_slots
from recollect.graph.seeds import seeded
from recollect.memory.bundle import read_bundle, write_bundle
from recollect.memory.projection import Projection, best_triples, project, sample_state
from recollect.models.config import ModelConfig
from recollect.models.parameters import parameter_shapes
from recollect.models.semantic import plain_model
from recollect.models.tensor_model import TensorModel
from recollect.models.zoo import build_model, parse_model
from recollect.training.auto import resolve_config
from recollect.training.recipe import Recipe, parse_recipe
from recollect.training.run import TrainingRun, known_cells


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
        self.model, self.graph, self.calibration, self.about = model, graph, calibration, dict(about)
        self.known = FactIndex(graph.facts, graph.sizes)
        self._cells = known_cells(model, self.known)
        self._learned = FactIndex(model.normalize(graph.split("train")), graph.sizes)
        self._projection: Projection | None = None
        self._states: dict[int, tuple[TensorModel, Calibration]] = {}  # by time

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
        recipe: Recipe | str = "modern",
        seed: int = 0,
        dtype: str = "float32",
        device: str = "cpu",
    ) -> Memory:
        """Learn the train split, choosing the epoch and the probabilities on the valid split if there is one."""
        chosen = recipe if isinstance(recipe, Recipe) else parse_recipe(recipe)
        config, _ = resolve_config(
            graph, chosen, model=model, dim=dim, predicate_dim=predicate_dim, time_dim=time_dim, form=form,
            static=static, reciprocal=reciprocal, time_levels=time_levels, dtype=dtype,
        )  # fmt: skip
        learning = TrainingRun(graph, config, recipe=chosen, seed=seed, device=device)
        for _ in learning:
            pass
        return cls.of(learning)

    @classmethod
    def of(cls, learning: TrainingRun) -> Memory:
        """What a finished run has learned."""
        model, calibration, about = learning.result()
        return cls(model, learning.graph, calibration, about)

    def recall(
        self,
        *,
        subject: str | None = None,
        predicate: str | None = None,
        object: str | None = None,
        time: str | int | date | None = None,
        top: int = 10,
    ) -> pl.DataFrame:
        """The `top` most likely labels of the one slot left open.

        Columns: the slot, its logit, the probability that it completes a true fact, and whether that
        fact was *stored* (learned) or is *predicted*. The probability looks at the logit alone: of the
        predicted answers fewer are true than it says, of the stored ones all.
        """
        given = {"s": subject, "p": predicate, "o": object, "t": time}
        query, slot = self._query(given)
        with torch.no_grad():
            scores = self.model.score_against(query, slot)[0].cpu()
        if scores.isnan().any():
            raise UserError("this memory scores some answers as NaN; train it again with a lower learning rate")
        best = scores.argsort(descending=True, stable=True)[: max(0, top)]
        answers = Facts(query.ids.expand(len(best), -1)).with_slot(slot, best)
        stored = self._learned.contains(self.model.normalize(answers)).tolist()
        names = {SLOT_NAMES[slot]: self.graph.axis(slot).take(best)}
        return _answers(names, scores[best], self.calibration.probability(scores[best], slot), stored)

    def know(
        self,
        *,
        subject: str | None = None,
        predicate: str | None = None,
        object: str | None = None,
        as_of: str | int | date | None = None,
        top: int = 10,
        progress: Callable[[float], None] | None = None,
    ) -> pl.DataFrame:
        """The `top` facts most likely to hold as of a time, by default the last; give any parts that they must have.

        Answers come from the semantic memory that the episodic one projects to, and only facts of the train split
        are *stored* in it. The first question solves for the starts and ends of all facts (`progress` hears of it).
        """
        given = {"s": subject, "p": predicate, "o": object}
        ids = {slot: self.graph.axis(slot).index(label) for slot, label in given.items() if label is not None}
        if self.model.config.form == "semantic":
            if as_of is not None:
                raise UserError("this is a semantic memory, which knows one time only; leave the time out")
            model, fit, time = plain_model(self.model), self.calibration, 0
        else:
            time = self._time(as_of)
            model, fit = self._semantic(time, progress)
        found, scores = best_triples(model, ids, top)
        stored = self._learned.contains(found.with_slot("t", time)).tolist()
        names = {SLOT_NAMES[slot]: self.graph.axis(slot).take(found.column(slot)) for slot in "spo"}
        return _answers(names, scores, fit.probability(scores, "o"), stored)

    def project(
        self, as_of: str | int | date | None = None, *, progress: Callable[[float], None] | None = None
    ) -> Memory:
        """The semantic memory of what holds as of a time, by default the last: a memory like any other."""
        if self.model.config.form == "semantic":
            raise UserError("this is a semantic memory already; project an episodic one")
        time = self._time(as_of)
        model, fit = self._semantic(time, progress)
        splits = {name: facts[facts.t == time] for name, facts in self.graph.splits.items()}
        about = self.about | {
            "projection": {"as_of": self.graph.times.label(time), "model": self.model.config.to_dict()}
        }
        return Memory(model, self.graph.with_splits(splits), fit, about)

    def _time(self, as_of: str | int | date | None) -> int:
        """The index of a time, by default the last."""
        return len(self.graph.times) - 1 if as_of is None else self.graph.times.index(as_of)

    def _semantic(self, time: int, progress: Callable[[float], None] | None) -> tuple[TensorModel, Calibration]:
        """The projection as of a time, and how its scores become probabilities."""
        if self._projection is None:
            learned = self.graph.with_splits({"train": self.graph.split("train")})
            self._projection = project(self.model, starts(learned), ends(learned), progress=progress)
        if time not in self._states:
            model = self._projection.at(time)
            seen = [self.graph.splits[name].true() for name in ("train", "valid") if name in self.graph.splits]
            fit = platt(sample_state(model, Facts.concat(seen), time, generator=seeded(0)))
            self._states[time] = model, Calibration(dict.fromkeys("spo", fit))
        return self._states[time]

    def probabilities(self, subject: str, predicate: str, object: str) -> pl.DataFrame:
        """The probability of a triple at every time, in order of time."""
        table = self.recall(subject=subject, predicate=predicate, object=object, top=len(self.graph.times))
        order = pl.DataFrame({"time": self.graph.times.labels})
        return order.join(table, on="time", how="left", maintain_order="left")

    def evaluate(self, split: str = "test", slots: str | None = None) -> dict[str, Any]:
        """Filtered and raw MRR, Hits@n and mean ranks of every slot, and the reliability of probabilities."""
        slots = self._slots(slots)
        facts = self.graph.split(split).true()
        if not len(facts):
            raise UserError(f"the {split} split of {self.graph.name} has no facts; choose another")
        figures = evaluate(self.model, facts, known=self.known, slots=slots)
        calibration = reliability_report(
            self.model,
            self.model.normalize(facts),
            self.calibration,
            known=self._cells,
            slots=slots,
            generator=seeded(0),
        )
        return {"split": split, "facts": len(facts), **figures, "calibration": calibration}

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the memory to a directory that `recollect.load` reads."""
        about = {
            **self.model.config.to_dict(),
            **self.about,
            "calibration": {slot: list(fit) for slot, fit in self.calibration.fits.items()},
            "versions": {name: version(name) for name in ("recollect", "torch")}
            | {"python": platform.python_version()},
        }
        write_bundle(Path(path), self.model.state_dict(), self.graph, about, overwrite=overwrite)

    def _slots(self, slots: str | None) -> str:
        have = self.model.slots
        if slots is None:
            return have
        wanted = parse_slots(slots)
        if missing := [slot for slot in wanted if slot not in have]:
            raise UserError(
                f"a {self.model.config.form} memory has no {SLOT_NAMES[missing[0]]}; choose slots among {have}"
            )
        if not wanted:
            raise UserError(f"no slots to evaluate; choose some of {have}")
        return wanted

    def _query(self, given: Mapping[str, Any]) -> tuple[Facts, str]:
        """The question as a fact with id 0 in its open slot, and that slot."""
        slots = self.model.slots
        if "t" not in slots and given["t"] is not None:
            raise UserError("this is a semantic memory, which has no times; leave the time out")
        open_slots = [slot for slot in slots if given[slot] is None]
        if len(open_slots) != 1:
            names = ", ".join(SLOT_NAMES[slot] for slot in slots)
            raise UserError(f"recall fills one slot, and {len(open_slots)} are open; give all but one of {names}")
        ids = [0 if given[slot] is None else self.graph.axis(slot).index(given[slot]) for slot in SLOTS]
        return Facts.of([ids]), open_slots[0]


def _answers(names: Mapping[str, list[str]], scores: Tensor, probability: Tensor, stored: list[bool]) -> pl.DataFrame:
    """Labels by column, then what is thought of them; the same columns where there is no answer."""
    return pl.DataFrame(
        {
            **names,
            "score": scores.double().tolist(),
            "probability": probability.tolist(),
            "status": ["stored" if known else "predicted" for known in stored],
        },
        schema=dict.fromkeys(names, pl.String) | {"score": pl.Float64, "probability": pl.Float64, "status": pl.String},
    )


def load(path: str | Path) -> Memory:
    """The memory that was saved at `path`, checked file by file."""
    path = Path(path)
    weights, graph, about = read_bundle(path)
    try:
        config = ModelConfig.from_dict(about)
        shapes = parameter_shapes(parse_model(config.model), config, graph.sizes)
        _check_weights(weights, shapes, config.torch_dtype)
        model = build_model(config, graph.sizes, generator=seeded(0))
        calibration = Calibration({slot: (float(a), float(b)) for slot, (a, b) in about["calibration"].items()})
        if not all(map(math.isfinite, (number for fit in calibration.fits.values() for number in fit))):
            raise ValueError("its calibration is not all finite numbers")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: the memory cannot be read ({error}); train again") from error
    model.load_state_dict(weights)
    kept: dict[str, Any] = {name: about[name] for name in ("recipe", "seed", "training", "projection") if name in about}
    return Memory(model, graph, calibration, kept)


def _check_weights(weights: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype) -> None:
    given = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if given != dict(shapes) or any(tensor.dtype != dtype for tensor in weights.values()):
        raise ValueError("its weights do not have the shapes of its model")
    if not all(bool(tensor.isfinite().all()) for tensor in weights.values()):
        raise ValueError("its weights are not all finite numbers")
