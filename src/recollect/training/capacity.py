"""Estimate, before there is data, what a graph needs: the model that suits it, memory, time and engines.

Bytes of models follow from their equations. The constants below were measured by `python -m benchmarks capacity`, on
two cores of a server CPU; see docs/capacity.md. Times are estimates: another machine differs by its own factor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recollect.errors import UserError
from recollect.graph.facts import check_cells
from recollect.models.config import ModelConfig
from recollect.models.parameters import equations_of
from recollect.models.zoo import parameter_count, parse_model
from recollect.training.auto import config_for_sizes, why_history_alone
from recollect.training.recipe import Recipe
from recollect.training.run import batch_bytes, training_bytes

STORE_BYTES_PER_FACT = 150  # facts, indexes and what reading takes at its peak: the limit that docs/promises.md gives
STORE_BYTES_PER_LABEL = 500  # the same of a label
ROWS_PER_SECOND = 1_000_000  # raw event rows that DuckDB reads on two cores
DUCKDB_ROWS = 2_000_000_000  # about an hour of raw rows, from where a cluster is worth its trouble
FLOPS = 2e10  # multiply-adds per second of training with the recipe modern


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Sizes of a graph that is planned."""

    entities: int
    times: int
    facts: int
    predicates: int = 100

    def __post_init__(self) -> None:
        for name in ("entities", "times", "facts", "predicates"):
            if getattr(self, name) < 1:
                raise UserError(f"a graph with {getattr(self, name)} {name} cannot be planned; wanted at least 1")
        check_cells(self.sizes)

    @property
    def sizes(self) -> dict[str, int]:
        """Return the counts of labels by kind."""
        return {"entity": self.entities, "predicate": self.predicates, "time": self.times}


def plan(demand: Demand, recipe: Recipe, free: int) -> dict[str, Any]:
    """Return the recommended model and engines, bytes of memory and seconds of an epoch, for `free` bytes of memory."""
    store = STORE_BYTES_PER_FACT * demand.facts + STORE_BYTES_PER_LABEL * sum(demand.sizes.values())
    events = {
        "engine": "duckdb" if demand.facts <= DUCKDB_ROWS else "spark",
        "seconds_to_read": round(demand.facts / ROWS_PER_SECOND, 1),
    }
    shown: dict[str, Any] = {"store_bytes": store, "memory_bytes": free, "events": events}
    reason = why_history_alone(demand.facts, demand.times)
    if reason:
        return shown | {"model": "history", "chosen": reason, "training": None, "tables": _tables(store, 0, 0, free)}
    config, reason = config_for_sizes(demand.sizes, demand.facts, recipe, free)
    recipe = recipe.for_model(config.model)
    weights, batch = training_bytes(config, demand.sizes), batch_bytes(config, demand.sizes, recipe)
    training = {
        "config": config.to_dict(),
        "parameters": parameter_count(config, demand.sizes),
        "weight_bytes": weights,
        "batch_bytes": batch,
        "epoch_seconds": round(epoch_flops(config, demand.sizes, demand.facts, recipe) / FLOPS, 1),
    }
    return shown | {
        "model": config.model,
        "chosen": reason,
        "training": training,
        "tables": _tables(store, weights, batch, free),
    }


def _tables(store: int, weights: int, batch: int, free: int) -> str:
    """Return where the tables of a model go: memory, memory-mapped files, or those of several ranks."""
    if store + weights + batch <= free:
        return "in memory"
    if store + batch <= free:
        return "memory-mapped files (recollect train --tables), or several ranks"
    return "several ranks, or a machine with more memory: the facts alone do not fit"


def epoch_flops(config: ModelConfig, sizes: Mapping[str, int], facts: int, recipe: Recipe) -> float:
    """Return the multiply-adds of an epoch: queries of both entity slots and their candidates, forwards and backwards.

    A query of a diagonal model costs dim, one of a core tensor dim² · predicate dim.
    """
    kind = parse_model(config.model)
    dims = config.dims
    is_diagonal = equations_of(kind, config)[""].is_diagonal
    query = dims["entity"] if is_diagonal else dims["entity"] ** 2 * dims["predicate"]
    candidates = min(recipe.candidates or sizes["entity"], sizes["entity"])
    passes, slots = 3, 2  # forwards, and backwards to queries and to candidates; subjects and objects
    return float(passes * slots * facts * kind.components * (query + candidates * dims["entity"]))
