"""A folder that stores finished pieces of an experiment and checkpoints of its training runs."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paper.provenance import commit
from recollect import EpisodicGraph, ModelConfig, Recipe, TrainingRun, UserError, dataset, read
from recollect.io.atomic import write_text
from recollect.io.datasets import DATASETS
from recollect.training.trainer import Epoch

CHECKPOINT_SECONDS = 60.0  # at least, between two checkpoints of a training run
CHECKPOINT_FACTOR = 30  # the pause is at least this many times the seconds that writing took

Report = Callable[[str, float], None]  # what is being done, and the share of the experiment that is finished


def _no_report(what: str, share: float) -> None:
    pass


@dataclass
class Workspace:
    """The folder of one experiment, its options, and how much of it is finished."""

    folder: Path
    quick: bool = False
    data: str | None = None  # replaces an experiment's own dataset
    dims: tuple[int, ...] | None = None  # replace an experiment's own
    report: Report = _no_report
    expected: float = 1.0  # cost of all pieces, in any unit
    done: float = 0.0  # cost of the finished pieces
    seconds: float = 0.0  # of all pieces, computed now or earlier
    commits: set[str] = field(default_factory=set)  # of the code that computed them
    _current: str = field(default="", repr=False)  # name of the piece that is being computed
    _reported: float = field(default=0.0, repr=False)  # highest share so far: a piece may have several training runs
    _seconds_before: float = field(default=0.0, repr=False)  # of the current piece, before an interruption
    _fingerprint: str = field(default="", repr=False)  # of a graph that was read from files

    def graph(self, data: str) -> EpisodicGraph:
        """Return the dataset of that name, or the graph of that path; if its files change, pieces are recomputed."""
        if data.partition("/")[0] in DATASETS:
            return dataset(data)
        graph = read(data)
        self._fingerprint = graph.fingerprint
        return graph

    def cached(
        self, name: str, settings: Mapping[str, Any], compute: Callable[[], Mapping[str, Any]], *, cost: float = 1.0
    ) -> dict[str, Any]:
        """Return the result of `compute()`, from the folder if it is stored there under this name and settings."""
        file = self.folder / f"{self._key(name, settings)}.json"
        self._current = name
        self._report_share(0.0)
        if file.is_file():
            found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        else:
            self._seconds_before, start = 0.0, time.monotonic()
            found = {**compute()}
            found["seconds"] = round(self._seconds_before + time.monotonic() - start, 4)
            found["commit"] = commit()
            write_text(file, json.dumps(found))
        self.seconds += found["seconds"]
        self.commits |= {found.pop("commit", None) or ""} - {""}
        self.done += cost
        self._report_share(0.0)
        return found

    def train(
        self,
        graph: EpisodicGraph,
        config: ModelConfig,
        recipe: Recipe,
        *,
        seed: int = 0,
        checkpoint: Path | None = None,
    ) -> TrainingRun:
        """Return a finished training run; it is stored at `checkpoint` now and then, and continued from there."""
        run, seconds_before = self._resume(graph, config, recipe, seed, checkpoint)
        self._seconds_before += seconds_before
        start = last_written = time.monotonic()
        pause = CHECKPOINT_SECONDS
        for record in run:
            if isinstance(record, Epoch):
                self._report_share(record.epoch / recipe.epochs)
            if checkpoint is not None and time.monotonic() - last_written > pause:
                before = time.monotonic()
                _store(run, checkpoint, seconds_before + before - start)
                last_written = time.monotonic()
                pause = max(CHECKPOINT_SECONDS, CHECKPOINT_FACTOR * (last_written - before))
        if checkpoint is not None:
            _store(run, checkpoint, seconds_before + time.monotonic() - start)
        return run

    def _resume(
        self, graph: EpisodicGraph, config: ModelConfig, recipe: Recipe, seed: int, checkpoint: Path | None
    ) -> tuple[TrainingRun, float]:
        """Return a run that continues from its checkpoint, if there is one, and the seconds spent on it so far."""
        run = TrainingRun(graph, config, recipe=recipe, seed=seed)
        if checkpoint is None or not checkpoint.is_file():
            return run, 0.0
        try:
            run.load_checkpoint_(checkpoint)
        except UserError:  # written by another version, or with other settings: start again
            return TrainingRun(graph, config, recipe=recipe, seed=seed), 0.0
        seconds = _seconds_file(checkpoint)
        return run, float(seconds.read_text()) if seconds.is_file() else 0.0

    def checkpoint(self, name: str, settings: Mapping[str, Any]) -> Path:
        """Return the path for a checkpoint of a training run."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / f"{self._key(name, settings)}.run"

    def remove_checkpoints(self) -> None:
        """Delete the checkpoints; stored results stay."""
        for path in self.folder.glob("*.run*"):
            if path.is_dir():  # a checkpoint whose writing was interrupted
                shutil.rmtree(path)
            else:
                path.unlink()

    def _key(self, name: str, settings: Mapping[str, Any]) -> str:
        """Return a file name of a piece of work: its name and a hash of its settings."""
        if self._fingerprint:
            settings = {**settings, "fingerprint": self._fingerprint}
        text = json.dumps(settings, sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return f"{name.replace('/', '_').replace(' ', '_')}-{digest}"

    def _report_share(self, share: float) -> None:
        """Report the share of the whole; a share of the current piece counts for at most one unit of cost."""
        self._reported = max(self._reported, min(1.0, (self.done + share) / self.expected))
        self.report(f"{self._current} {share:.0%}" if share else self._current, self._reported)


def _store(run: TrainingRun, checkpoint: Path, seconds: float) -> None:
    """Write a checkpoint and the seconds that the run took so far."""
    run.save_checkpoint(checkpoint)
    write_text(_seconds_file(checkpoint), str(seconds))


def _seconds_file(checkpoint: Path) -> Path:
    return checkpoint.with_suffix(".run-seconds")
