"""Where experiments run: every piece of work is done once, kept, and told of; an interrupted one goes on."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from recollect.errors import UserError
from recollect.graph.facts import EpisodicGraph
from recollect.io.atomic import write_text
from recollect.io.datasets import DATASETS, dataset
from recollect.io.tables import read
from recollect.models.tensor_model import Dims
from recollect.training.recipe import Recipe
from recollect.training.run import TrainingRun
from recollect.training.trainer import Epoch

KEEP_SECONDS = 60.0  # at least, between two checkpoints of a training
KEEP_SHARE = 30  # times as long as one takes: a large model is not written all the time
Tell = Callable[[str, float], None]  # what is being done, and the share of an experiment that is done


@dataclass
class Lab:
    """A folder with the work of one experiment, and how far it is."""

    folder: Path
    quick: bool = False
    data: str | None = None  # in place of an experiment's own
    dims: tuple[int, ...] | None = None
    tell: Tell = lambda what, share: None
    expected: float = 1.0  # the cost of all work, in any unit
    done: float = 0.0
    seconds: float = 0.0  # that all work took, now or earlier
    commits: set[str] = field(default_factory=set)  # of the library that did it
    _doing: str = field(default="", repr=False)
    _share: float = field(default=0.0, repr=False)  # the highest told: a piece of work may have several trainings
    _earlier: float = field(default=0.0, repr=False)  # seconds of the running piece of work before it was interrupted
    _read: str = field(default="", repr=False)  # the fingerprint of a graph that was read from files

    def graph(self, data: str) -> EpisodicGraph:
        """The dataset of that name, or the graph of that file or folder: when that changes, work is done again."""
        if data.partition("/")[0] in DATASETS:
            return dataset(data)
        graph = read(data)
        self._read = graph.fingerprint
        return graph

    def once(
        self, name: str, settings: Mapping[str, Any], work: Callable[[], Mapping[str, Any]], *, cost: float = 1.0
    ) -> dict[str, Any]:
        """What `work` finds, kept under its name and settings: done again only when these change."""
        file = self.folder / f"{self._named(name, settings)}.json"
        self._doing = name
        self._told(0.0)
        if file.is_file():
            found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        else:
            began, self._earlier = time.monotonic(), 0.0
            found = {**work()}
            found["seconds"] = round(self._earlier + time.monotonic() - began, 4)
            found["commit"] = commit()
            write_text(file, json.dumps(found))
        self.seconds += found["seconds"]
        self.commits |= {found.pop("commit", None) or ""} - {""}
        self.done += cost
        return found

    def train(
        self,
        graph: EpisodicGraph,
        *,
        model: str,
        dim: int | Dims,
        recipe: Recipe,
        seed: int = 0,
        form: str = "episodic",
        place: Path | None = None,
    ) -> TrainingRun:
        """A finished run; with a `place` it is kept there now and then, and continued from there."""
        fresh = partial(TrainingRun, graph, model=model, dim=dim, recipe=recipe, seed=seed, form=form)
        learning, began = fresh(), time.monotonic()
        kept, pause, earlier = began, KEEP_SECONDS, 0.0
        if place is not None and place.is_file():
            try:
                learning.resume_(place)
                earlier = _spent(place)
            except UserError:  # of another version: what cannot be continued is begun again
                learning = fresh()
        self._earlier += earlier
        for record in learning:
            if isinstance(record, Epoch):
                self._told(record.epoch / recipe.epochs)
            if place is not None and time.monotonic() - kept > pause:
                before = time.monotonic()
                _keep(learning, place, earlier + before - began)
                kept = time.monotonic()
                pause = max(KEEP_SECONDS, KEEP_SHARE * (kept - before))
        if place is not None:
            _keep(learning, place, earlier + time.monotonic() - began)
        return learning

    def place(self, name: str, settings: Mapping[str, Any]) -> Path:
        """Where a training may be kept."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / f"{self._named(name, settings)}.run"

    def clear(self) -> None:
        """Forget the trainings that were kept; what they found stays."""
        for place in self.folder.glob("*.run*"):
            if place.is_dir():  # of a checkpoint that was being written when all ended
                shutil.rmtree(place)
            else:
                place.unlink()

    def _named(self, name: str, settings: Mapping[str, Any]) -> str:
        told = {**settings, "fingerprint": self._read} if self._read else settings
        return f"{_file_name(name)}-{_digest(told)}"

    def _told(self, share: float) -> None:
        """Within a piece of work its share counts for at most one unit of cost."""
        self._share = max(self._share, min(1.0, (self.done + share) / self.expected))
        self.tell(f"{self._doing} {share:.0%}" if share else self._doing, self._share)


def _keep(learning: TrainingRun, place: Path, seconds: float) -> None:
    """Keep a run, and how long it took so far."""
    learning.keep(place)
    write_text(place.with_suffix(".run-seconds"), str(seconds))


def _spent(place: Path) -> float:
    file = place.with_suffix(".run-seconds")
    return float(file.read_text()) if file.is_file() else 0.0


def provenance() -> dict[str, Any]:
    """With what and when figures were told: versions and the machine."""
    names = ("recollect", "torch", "numpy", "numba", "polars")
    return {
        "versions": {name: version(name) for name in names} | {"python": platform.python_version()},
        "machine": {"system": platform.system(), "cores": os.cpu_count()},
        "date": datetime.now(UTC).date().isoformat(),
    }


@cache
def commit() -> str | None:
    """The commit of the library, where it is a checkout; `-dirty` where that has changed since."""
    if (git := shutil.which("git")) is None:
        return None
    here = [git, "-C", str(Path(__file__).parent)]
    named = [*here, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    tracked = [*here, "ls-files", "--error-unmatch", __file__]  # not a checkout of something else around us
    told, ours = (subprocess.run(words, capture_output=True, text=True, check=False) for words in (named, tracked))
    return told.stdout.strip() if told.returncode == ours.returncode == 0 else None


def _file_name(name: str) -> str:
    return name.replace("/", "_").replace(" ", "_")


def _digest(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()[:12]
