"""Train and evaluate PyKEEN's semantic models on request, and answer with seconds.

    python pykeen_worker.py TRIPLES.npz --model distmult --dim 100 --batch-size 1024

TRIPLES.npz has the id arrays `train`, `valid` and `test`, each (n, 3) as subject, predicate, object, and the numbers
`entities` and `predicates`. The worker prints `{"ready": VERSION}`, then reads tasks from standard input, one per line,
and answers `{"seconds": …}`: `epoch` trains one epoch, `evaluate` ranks the test facts, `evaluate 500` the first 500.
It ends when its input closes. This file runs in an environment that has PyKEEN and needs no recollect.

The work is the same as ours: logistic loss, two negatives per fact, Adam, no penalty, dropout or normalisation.
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
EVALUATION_BATCH = 32  # facts per score matrix; on a CPU larger ones were slower

# PyKEEN's defaults add penalties, constraints, dropout and batch norm; without them it does the same work as ours
SETTINGS: dict[str, dict[str, Any]] = {
    "distmult": {"entity_constrainer": None, "regularizer": None},
    "complex": {"regularizer": None},
    "rescal": {"regularizer": None},
    "tucker": {"dropout_0": 0.0, "dropout_1": 0.0, "dropout_2": 0.0, "apply_batch_normalization": False},
}


def build_tasks(path: str, name: str, dim: int, batch_size: int) -> dict[str, Callable[..., None]]:
    """Return the functions of the tasks by name."""
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


def _reply(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Answer the tasks of standard input."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("triples")
    parser.add_argument("--model", required=True, choices=SETTINGS)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    if options.threads:
        torch.set_num_threads(options.threads)
    tasks = build_tasks(options.triples, options.model, options.dim, options.batch_size)
    _reply({"ready": version("pykeen")})
    for line in sys.stdin:
        task, *arguments = line.split()
        start = time.perf_counter()
        tasks[task](*arguments)
        _reply({"seconds": time.perf_counter() - start})


if __name__ == "__main__":
    main()
