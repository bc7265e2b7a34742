"""Peak memory of training, ours and the textbook's, each in a process of its own."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from benchmarks import textbook
from benchmarks.contests import FLOAT_BYTES, TEXTBOOK, Contest, Subject, run_steps, sampled_recipe
from benchmarks.timing import ScaledTimer
from recollect import Facts, ModelConfig, UserError
from recollect.models.zoo import build_model, parameter_count
from recollect.training.trainer import Trainer

FREE_SHARE = 0.8  # of the free memory may be allocated by what is measured
ROOT = Path(__file__).parents[1]


@contextmanager
def memory_contest(subject: Subject, with_textbook: bool = True) -> Iterator[Contest]:
    """The peak resident memory of training; nothing is timed."""
    graph = subject.graph()
    contenders = {"peak_bytes": "ours"}
    if with_textbook:
        contenders["reference_peak_bytes"] = TEXTBOOK
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "train.npy"
        np.save(file, graph.split("train").ids.numpy())
        peaks = {key: _measure_peak(subject, file, name) for key, name in contenders.items()}
    notes = [f"{name}: more than is free" for key, name in contenders.items() if peaks[key] is None]
    weight_bytes = FLOAT_BYTES * parameter_count(subject.config, graph.sizes)
    yield Contest(
        ours=None,
        work=len(graph.split("train")),
        unit="facts",
        about=subject.about(notes) | peaks | {"weight_bytes": weight_bytes},
    )


def _measure_peak(subject: Subject, facts: Path, contender: str) -> int | None:
    """Return the peak bytes of one contender; None if it ran out of memory."""
    request = {
        "contender": contender,
        "config": subject.config.to_dict(),
        "sizes": dict(subject.graph().sizes),
        "facts": str(facts),
        "batch_size": subject.shape.batch_size,
        "seconds": subject.effort.reference_seconds,
        "threads": torch.get_num_threads(),
    }
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-c", "from benchmarks.peak_memory import main; main()", json.dumps(request)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return int(done.stdout)
    if "allocate" in done.stderr or "MemoryError" in done.stderr:
        return None
    raise UserError(f"training {subject.model} in a process of its own failed: {done.stderr.strip()[-300:]}")


def main() -> None:
    """Train for some seconds as the last argument says, and print the peak resident bytes of this process."""
    request = json.loads(sys.argv[-1])
    torch.set_num_threads(request["threads"])
    _limit_to_free_memory()
    facts = Facts(torch.from_numpy(np.load(request["facts"])))
    config = ModelConfig.from_dict(request["config"])
    train = _train_textbook if request["contender"] == TEXTBOOK else _train_ours
    train(config, facts, request)
    sys.stdout.write(str(peak_bytes()))


def _train_textbook(config: ModelConfig, facts: Facts, request: dict[str, Any]) -> None:
    model = textbook.build(config.model, request["sizes"], config.dim, config.time_dim)
    step = partial(textbook.train_step, model, textbook.optimizer_of(model))
    steps = math.ceil(len(facts) / request["batch_size"])
    ScaledTimer(partial(run_steps, step, facts.ids, request["batch_size"]), steps, request["seconds"])


def _train_ours(config: ModelConfig, facts: Facts, request: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(0)
    model = build_model(config, request["sizes"], generator=generator)
    start = time.perf_counter()
    for _ in Trainer(model, facts, sampled_recipe(request["batch_size"]), generator=generator):
        if time.perf_counter() - start > request["seconds"]:
            break


def _limit_to_free_memory() -> None:
    """Let allocations beyond the free memory fail, so that the system does not end some other process."""
    if sys.platform != "win32":
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (int(FREE_SHARE * psutil.virtual_memory().available), hard))


def peak_bytes() -> int:
    """Return the highest resident memory of this process so far; the present one where the system has no record."""
    try:  # getrusage would include the process that started this one
        status = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    except OSError:
        return psutil.Process().memory_info().rss
