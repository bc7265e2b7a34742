"""Translate between what a memory is made from and the content of a bundle."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from torch import Tensor

from recollect.evaluation.calibration import Calibration
from recollect.graph.facts import EpisodicGraph
from recollect.graph.seeds import seeded
from recollect.history.cells import CellRates
from recollect.history.history import History
from recollect.memory.bundle import Bundle
from recollect.memory.forecasts import FORECASTS, Forecaster
from recollect.memory.learning import HISTORY, Learned
from recollect.memory.scorer import MemoryScorer
from recollect.models.config import ModelConfig
from recollect.models.parameters import parameter_shapes
from recollect.models.tensor_model import TensorModel
from recollect.models.zoo import build_model, parse_model

KEPT = ("recipe", "seed", "training", "projection")  # keys of a bundle's description that a memory keeps
CELLS = "cells"  # the file of the rates of cells
Pairs = dict[str, tuple[float, float]]


def to_bundle(learned: Learned) -> Bundle:
    """Return the bundle of what was learned."""
    scorer = learned.scorer
    config = {"model": HISTORY} if scorer.model is None else scorer.model.config.to_dict()
    versions = {name: version(name) for name in ("recollect", "torch")}
    about = {
        **config,
        **learned.about,
        "calibration": {slot: list(fit) for slot, fit in learned.calibration.fits.items()},
        "among_predicted": learned.calibration.among_predicted,
        "score_weights": {slot: list(pair) for slot, pair in scorer.weights.items()},
        "versions": {**versions, "python": platform.python_version()},
    }
    weights = {} if scorer.model is None else scorer.model.state_dict()
    tensors = {} if scorer.history is None else {HISTORY: scorer.history.tensors()}
    if scorer.cells is not None:
        tensors[CELLS] = scorer.cells.tensors()
    if learned.forecaster is not None:
        tensors[FORECASTS] = learned.forecaster.tensors()
        about[FORECASTS] = {slot: list(fit) for slot, fit in learned.forecaster.calibration.fits.items()}
    return Bundle(weights, learned.graph, about, tensors)


def read_learned(bundle: Bundle) -> Learned:
    """Return what was learned from the content of a bundle; raise ValueError and its like if it is malformed."""
    about, graph = bundle.about, bundle.graph
    model = None if about["model"] == HISTORY else _build_model(bundle.weights, graph, about)
    history = cells = None
    if HISTORY in bundle.tensors:
        history = History.from_tensors(bundle.tensors[HISTORY], graph.split("train"), graph.sizes)
        cells = CellRates.from_tensors(bundle.tensors[CELLS], history)
    if model is None and history is None:
        raise ValueError("it has neither a model nor a history")
    weights = _parse_pairs(about.get("score_weights", {}))
    calibration = Calibration(_parse_fits(about["calibration"]), bool(about.get("among_predicted", False)))
    kept = {name: about[name] for name in KEPT if name in about}
    forecaster = None
    if history is not None and FORECASTS in bundle.tensors:  # a bundle of an earlier version has none
        horizons = Calibration(_parse_fits(about[FORECASTS]), among_predicted=True)
        forecaster = Forecaster.from_tensors(bundle.tensors[FORECASTS], history, horizons)
    return Learned(MemoryScorer(model, history, weights, cells), graph, calibration, kept, forecaster)


def _build_model(weights: Mapping[str, Tensor], graph: EpisodicGraph, about: Mapping[str, Any]) -> TensorModel:
    """Return the model of a bundle; raise ValueError if its weights do not fit it."""
    config = ModelConfig.from_dict(about)
    shapes = parameter_shapes(parse_model(config.model), config, graph.sizes)
    given = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if given != dict(shapes) or any(tensor.dtype != config.torch_dtype for tensor in weights.values()):
        raise ValueError("its weights do not have the shapes of its model")
    if not all(bool(tensor.isfinite().all()) for tensor in weights.values()):
        raise ValueError("its weights are not all finite numbers")
    model = build_model(config, graph.sizes, generator=seeded(0))
    model.load_state_dict(weights)
    return model


def _parse_fits(fits: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    """Return two or four finite numbers by slot."""
    parsed = {slot: tuple(float(number) for number in fit) for slot, fit in fits.items()}
    if not all(len(fit) in (2, 4) and all(map(math.isfinite, fit)) for fit in parsed.values()):
        raise ValueError("its calibration is not two or four finite numbers for each slot")
    return parsed


def _parse_pairs(pairs: Mapping[str, Any]) -> Pairs:
    """Return two finite numbers by slot."""
    parsed = {slot: (float(a), float(b)) for slot, (a, b) in pairs.items()}
    if not all(math.isfinite(number) for pair in parsed.values() for number in pair):
        raise ValueError("its calibration is not all finite numbers")
    return parsed
