"""Evaluate a scorer with the official evaluator of the Temporal Graph Benchmark (py-tgb, extra `tgb`).

The protocol is that of its temporal knowledge graphs: every fact is asked for its object and, through the inverse
predicate, for its subject; negatives are all entities but the true ones at the same time.
"""

from __future__ import annotations

import torch

from recollect.errors import UserError
from recollect.evaluation.ranking import Scorer
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import Facts

BLOCK = 512  # facts per call of the evaluator


def evaluate_with_tgb(scorer: Scorer, facts: Facts, *, known: FactIndex, benchmark: str) -> dict[str, float]:
    """Return "mrr" and "hits@10" of the facts as the evaluator of `benchmark` (tkgl-yago, …) computes them.

    The evaluator takes a matrix of negatives per call, so removed candidates are −∞ in it: below every score.
    """
    evaluator = _evaluator(benchmark)
    totals: dict[str, float] = {}
    facts = facts[facts.t.argsort(stable=True)]
    for block in facts.split(BLOCK):
        for slot in "os":
            own = block.column(slot)[:, None]
            scores = scorer.score_against(block, slot).double()
            true = scores.gather(1, own)[:, 0]
            rows, ids = known.find(block, slot)
            scores[rows, ids] = -torch.inf
            scores.scatter_(1, own, -torch.inf)
            asked = {"y_pred_pos": true.numpy(), "y_pred_neg": scores.numpy(), "eval_metric": ["mrr", "hits@"]}
            for name, value in evaluator.eval(asked).items():
                totals[name] = totals.get(name, 0.0) + float(value) * len(block)
    return {name: total / (2 * len(facts)) for name, total in totals.items()}


def _evaluator(benchmark: str):  # type: ignore[no-untyped-def]  # py-tgb has no types
    try:
        from tgb.linkproppred.evaluate import Evaluator
    except ImportError as error:
        raise UserError(
            "the evaluator of the Temporal Graph Benchmark needs py-tgb; install it with: pip install 'recollect[tgb]'"
        ) from error
    try:
        return Evaluator(name=benchmark)
    except NotImplementedError as error:
        raise UserError(f"py-tgb has no benchmark {benchmark!r}; give one such as tkgl-yago or tkgl-icews") from error
