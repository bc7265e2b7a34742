"""What was learned without labels that came later: neither predicates nor times of which nothing is stored."""

from __future__ import annotations

from dataclasses import replace

from recollect.graph.growing import restrict_graph
from recollect.graph.runs import stored
from recollect.memory.answering.scorer import MemoryScorer
from recollect.memory.learning.learn import Learned
from recollect.models.restricting import restrict_model


def restrict(learned: Learned, predicates: int, reach: tuple[int, int]) -> Learned:
    """Return what was learned with its first predicates and the times from one bin to another as only candidates.

    All facts have such a predicate and such a time. Scores of the candidates that are left stay as they are, but the
    popularity of a time, which is a share of all times.
    """
    old, axis = learned.scorer, learned.graph.times
    first, last = ((number - axis.first) // axis.step for number in reach)
    if predicates == len(learned.graph.predicates) and (first, last) == (0, len(axis) - 1):
        return learned
    graph = restrict_graph(learned.graph, predicates, reach)
    models = tuple(restrict_model(model, predicates, first, last) for model in old.models)
    history = old.history and old.history.with_first_predicates(stored(graph, "train"), graph.sizes)
    cells, forecaster = old.cells, learned.forecaster
    if history is not None:
        cells = cells and cells.with_history(history)
        forecaster = forecaster and forecaster.with_history(history)
    times = old.trained_times and (old.trained_times[0] - first, old.trained_times[1] - first)
    scorer = MemoryScorer(models, history, old.weights, cells, times)
    return replace(learned, scorer=scorer, graph=graph, forecaster=forecaster, models=None)
