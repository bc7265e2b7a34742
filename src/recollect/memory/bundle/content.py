"""Translate between what a memory is made from and the content of a bundle."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from torch import Tensor

from recollect.evaluation.calibration import Calibration
from recollect.graph.facts import EpisodicGraph
from recollect.graph.runs import stored
from recollect.history.cells import CellRates
from recollect.history.history import History
from recollect.memory.answering.forecasts import FORECASTS, Forecaster
from recollect.memory.answering.intervals import INTERVALS, from_dict, to_dict
from recollect.memory.answering.scorer import MemoryScorer
from recollect.memory.bundle.folder import Bundle
from recollect.memory.learning.learn import Learned
from recollect.models.config import ModelConfig
from recollect.models.parameters import all_finite, parameter_shapes
from recollect.models.tensor_model import TensorModel
from recollect.models.zoo import build_model, parse_model
from recollect.training.auto import HISTORY

JOURNAL = "journal"  # the id of the memory's journal, and the last event that the bundle absorbed
KEPT = (
    JOURNAL,
    "recipe",
    "seed",
    "training",
    "runs",
    "held_out",
    "projection",
    "relearned",
)  # keys of a bundle's description that a memory keeps
HIGHEST = "highest_probability"  # the key of the highest probability that each slot says
TRAINED_TIMES = "trained_times"  # the key of the first and last time that models were trained on, if there are others
CELLS = "cells"  # the file of the rates of cells


def to_bundle(learned: Learned) -> Bundle:
    """Return the bundle of what was learned."""
    scorer = learned.scorer
    versions = {name: version(name) for name in ("recollect", "torch")}
    about = {
        **_configs(scorer.models),
        **learned.about,
        "calibration": {slot: list(fit) for slot, fit in learned.calibration.fits.items()},
        "among_predicted": learned.calibration.among_predicted,
        HIGHEST: dict(learned.calibration.highest),
        "score_weights": {slot: list(weights) for slot, weights in scorer.weights.items()},
        **({} if scorer.trained_times is None else {TRAINED_TIMES: list(scorer.trained_times)}),
        "versions": {**versions, "python": platform.python_version()},
    }
    weights = scorer.models[0].state_dict() if scorer.models else {}
    tensors = {f"weights-{number}": model.state_dict() for number, model in enumerate(scorer.models[1:], start=2)}
    if scorer.history is not None:
        tensors[HISTORY] = scorer.history.tensors()
    if scorer.cells is not None:
        tensors[CELLS] = scorer.cells.tensors()
    if learned.forecaster is not None:
        tensors[FORECASTS] = learned.forecaster.tensors()
        about[f"{FORECASTS}_{HIGHEST}"] = dict(learned.forecaster.calibration.highest)
        about[FORECASTS] = {slot: list(fit) for slot, fit in learned.forecaster.calibration.fits.items()}
    if learned.intervals is not None:
        about[INTERVALS] = to_dict(learned.intervals)
    return Bundle(weights, learned.graph, about, tensors)


def read_learned(bundle: Bundle) -> Learned:
    """Return what was learned from the content of a bundle; raise ValueError and its like if it is malformed."""
    about, graph = bundle.about, bundle.graph
    models = _build_models(bundle)
    history = cells = None
    if HISTORY in bundle.tensors:
        history = History.from_tensors(bundle.tensors[HISTORY], stored(graph, "train"), graph.sizes)
        cells = CellRates.from_tensors(bundle.tensors[CELLS], history)
    times = _parse_trained_times(about.get(TRAINED_TIMES))
    scorer = MemoryScorer(models, history, _parse_numbers(about.get("score_weights", {})), cells, times)
    if not scorer.parts:
        raise ValueError("it has neither a model nor a history")
    if any(len(weights) != len(scorer.parts) for weights in scorer.weights.values()):
        raise ValueError("its weights of scores are not as many as its models and history")
    highest = _parse_highest(about.get(HIGHEST, {}))
    calibration = Calibration(_parse_fits(about["calibration"]), bool(about.get("among_predicted", False)), highest)
    kept = {name: about[name] for name in KEPT if name in about}
    _check_journal(kept.get(JOURNAL, {"id": "", "absorbed": 0}))
    forecaster = None
    if history is not None and FORECASTS in bundle.tensors:  # a bundle of an earlier version has none
        highest = _parse_highest(about.get(f"{FORECASTS}_{HIGHEST}", {}))
        horizons = Calibration(_parse_fits(about[FORECASTS]), among_predicted=True, highest=highest)
        forecaster = Forecaster.from_tensors(bundle.tensors[FORECASTS], history, horizons)
    intervals = from_dict(about[INTERVALS]) if INTERVALS in about else None
    return Learned(scorer, graph, calibration, kept, forecaster, intervals)


def _check_journal(journal: Mapping[str, Any]) -> None:
    """Raise ValueError unless a journal and an event are described."""
    if journal.keys() != {"id", "absorbed"} or not isinstance(journal["id"], str):
        raise ValueError("its journal is not described by its id and an event")
    if type(journal["absorbed"]) is not int or journal["absorbed"] < 0:
        raise ValueError("its journal has no event like that")


def _configs(models: Sequence[TensorModel]) -> dict[str, Any]:
    """Return how a bundle describes its models: the fields of one config, or `models` with the configs of several."""
    configs = [model.config.to_dict() for model in models]
    if len(configs) == 1:
        return configs[0]
    return {"model": "+".join(config["model"] for config in configs) or HISTORY, "models": configs}


def _build_models(bundle: Bundle) -> tuple[TensorModel, ...]:
    """Return the models of a bundle, which have one form."""
    about = bundle.about
    configs = about["models"] if about.get("models") else [] if about["model"] == HISTORY else [about]
    names = ["weights", *(f"weights-{number}" for number in range(2, len(configs) + 1))]
    files = {"weights": bundle.weights, **bundle.tensors}
    models = tuple(
        _build_model(files[name], bundle.graph, config) for name, config in zip(names, configs, strict=False)
    )
    if len({model.config.form for model in models}) > 1:
        raise ValueError("its models have several forms")
    return models


def _build_model(weights: Mapping[str, Tensor], graph: EpisodicGraph, about: Mapping[str, Any]) -> TensorModel:
    """Return the model of a bundle; raise ValueError if its weights do not fit it."""
    config = ModelConfig.from_dict(about)
    shapes = parameter_shapes(parse_model(config.model), config, graph.sizes)
    given = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if given != dict(shapes) or any(tensor.dtype != config.torch_dtype for tensor in weights.values()):
        raise ValueError("its weights do not have the shapes of its model")
    if not all(all_finite(tensor) for tensor in weights.values()):
        raise ValueError("its weights are not all finite numbers")
    model = build_model(config, graph.sizes, device="meta")
    model.load_state_dict(weights, assign=True)
    return model


def _parse_fits(fits: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    """Return two or four finite numbers by slot."""
    parsed = _parse_numbers(fits)
    if any(len(fit) not in (2, 4) for fit in parsed.values()):
        raise ValueError("its calibration is not two or four numbers for each slot")
    return parsed


def _parse_trained_times(times: Sequence[int] | None) -> tuple[int, int] | None:
    """Return the first and the last time that models were trained on; None if these are all."""
    if times is None:
        return None
    first, last = map(int, times)
    return first, last


def _parse_highest(highest: Mapping[str, Any]) -> dict[str, float]:
    """Return a probability by slot."""
    parsed = {slot: float(number) for slot, number in highest.items()}
    if not all(0 <= number <= 1 for number in parsed.values()):
        raise ValueError("its highest probabilities are not from 0 to 1")
    return parsed


def _parse_numbers(lists: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    """Return finite numbers by slot."""
    parsed = {slot: tuple(float(number) for number in numbers) for slot, numbers in lists.items()}
    if not all(math.isfinite(number) for numbers in parsed.values() for number in numbers):
        raise ValueError("its calibration is not all finite numbers")
    return parsed
