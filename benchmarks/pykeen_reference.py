"""PyKEEN's semantic models as a worker: it trains an epoch or evaluates whenever it is asked, and answers with seconds.

    python benchmarks/pykeen_reference.py TRIPLES.npz --model distmult --dim 100 --batch-size 1024

TRIPLES.npz has the id arrays `train`, `valid` and `test`, each (n, 3) as subject, predicate, object, and the numbers
`entities` and `predicates`. The worker says `{"ready": VERSION}`, then reads what to do from standard input, a line
each, and answers `{"seconds": …}`: `epoch` trains one, `evaluate` ranks the test facts, `evaluate 500` the first 500.
It ends with its input. Needs PyKEEN, which recollect does not.

The same work as ours: logistic loss, two negatives a fact, Adam, no penalty, no dropout, no normalisation.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

LEARNING_RATE = 1e-3
EVALUATION_BATCH = 32  # facts whose candidates are scored at once; on a processor larger ones were slower

# its defaults add penalties, constraints, dropout and batch norm; without them it does less, and the same as ours
SETTINGS: dict[str, dict[str, Any]] = {
    "distmult": {"entity_constrainer": None, "regularizer": None},
    "complex": {"regularizer": None},
    "rescal": {"regularizer": None},
    "tucker": {"dropout_0": 0.0, "dropout_1": 0.0, "dropout_2": 0.0, "apply_batch_normalization": False},
}


def work(path: str, name: str, dim: int, batch_size: int) -> dict[str, Callable[..., None]]:
    """What the worker can be asked for."""
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.losses import SoftplusLoss
    from pykeen.models import RESCAL, ComplEx, DistMult, TuckER
    from pykeen.training import SLCWATrainingLoop
    from pykeen.triples import CoreTriplesFactory

    with np.load(path) as archive:
        train, valid, test = (torch.from_numpy(archive[split]) for split in ("train", "valid", "test"))
        entities, predicates = int(archive["entities"]), int(archive["predicates"])
    factory = CoreTriplesFactory(train, num_entities=entities, num_relations=predicates)
    kind = {"distmult": DistMult, "complex": ComplEx, "rescal": RESCAL, "tucker": TuckER}[name]
    model = kind(triples_factory=factory, embedding_dim=dim, loss=SoftplusLoss(), random_seed=0, **SETTINGS[name]).cpu()
    loop = SLCWATrainingLoop(
        model=model,
        triples_factory=factory,
        optimizer=torch.optim.Adam(model.parameters(), lr=LEARNING_RATE),
        negative_sampler="basic",
        negative_sampler_kwargs={"num_negs_per_pos": 2},
    )
    evaluator = RankBasedEvaluator(filtered=True)
    epochs = 0

    def epoch() -> None:
        nonlocal epochs
        epochs += 1
        loop.train(
            factory,
            num_epochs=epochs,
            batch_size=batch_size,
            continue_training=epochs > 1,
            use_tqdm=False,
            use_tqdm_batch=False,
            num_workers=0,
            pin_memory=False,
        )

    def evaluate(count: str | None = None) -> None:
        evaluator.evaluate(
            model,
            test[: int(count)] if count else test,
            batch_size=EVALUATION_BATCH,
            additional_filter_triples=[train, valid],
            use_tqdm=False,
            do_time_consuming_checks=False,
        )

    return {"epoch": epoch, "evaluate": evaluate}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("triples")
    parser.add_argument("--model", required=True, choices=SETTINGS)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--threads", type=int)
    told = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    if told.threads:
        torch.set_num_threads(told.threads)
    tasks = work(told.triples, told.model, told.dim, told.batch_size)
    print(json.dumps({"ready": version("pykeen")}), flush=True)
    for line in sys.stdin:
        task, *options = line.split()
        began = time.perf_counter()
        tasks[task](*options)
        print(json.dumps({"seconds": time.perf_counter() - began}), flush=True)


if __name__ == "__main__":
    main()
