"""Remember every new file of a folder exactly once: the name and digest of a file are in the event of its facts."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from recollect.errors import UserError
from recollect.graph.facts import EpisodicGraph
from recollect.io.label_tables import digest_of_file
from recollect.io.tables.files import SUFFIXES
from recollect.memory.journal.changes import Delta
from recollect.memory.journal.effects import addition
from recollect.memory.journal.inputs import asked_facts
from recollect.memory.timeline import Timeline

SETTLED_SECONDS = 1.0  # a file that was changed later than this is looked at twice
_TEMPORARY = re.compile(r"^[._~]|[~]$|\.(?:tmp|temp|part|partial|crdownload|swp)(?:\.|$)", re.IGNORECASE)

Stamp = tuple[int, int]  # size and time of the last change of a file


@dataclass(frozen=True)
class Remembered:
    """A file that was looked at: what it added, or the sentence that says why it was not read."""

    name: str
    changes: pl.DataFrame | None = None
    error: str | None = None


@dataclass
class Watcher:
    """Looks for new files in a folder, and remembers their facts. What is still being written waits."""

    timeline: Timeline
    folder: Path
    options: Mapping[str, Any] = field(default_factory=dict)  # of `asked_facts`
    _stamps: dict[str, Stamp] = field(default_factory=dict)  # of the last look
    _done: dict[str, Stamp] = field(default_factory=dict)  # files that need no other look

    def __post_init__(self) -> None:
        if not self.folder.is_dir():
            raise UserError(f"{self.folder}: no such folder; give one whose files are to be remembered")

    def look(self) -> Iterator[Remembered]:
        """Yield every new file that is complete, by name, after its facts were remembered."""
        before, self._stamps = self._stamps, self._find()
        for name, stamp in sorted(self._stamps.items()):
            is_settled = before.get(name) == stamp or time.time_ns() - stamp[1] > SETTLED_SECONDS * 1e9
            if not is_settled or self._done.get(name) == stamp:
                continue
            found = self._remember(name)
            self._done[name] = stamp
            if found is not None:
                yield found

    @property
    def is_waiting(self) -> bool:
        """Whether a file was found that may still be written."""
        return any(self._done.get(name) != stamp for name, stamp in self._stamps.items())

    def watch(
        self, interval: float, *, once: bool = False, is_stopped: Callable[[], bool] = bool
    ) -> Iterator[Remembered]:
        """Yield new files as they come, looking every `interval` seconds; with `once`, those that are there."""
        while not is_stopped():
            for found in self.look():
                yield found
                if is_stopped():
                    return
            if once and not self.is_waiting:
                return
            time.sleep(min(interval, SETTLED_SECONDS) if self.is_waiting else interval)

    def _find(self) -> dict[str, Stamp]:
        """Return the size and the time of each file that may hold a table, by name."""
        found = {}
        for path in self.folder.iterdir():
            if path.suffix.lower() in SUFFIXES and not _TEMPORARY.search(path.name) and path.is_file():
                status = path.stat()
                found[path.name] = status.st_size, status.st_mtime_ns
        return found

    def _remember(self, name: str) -> Remembered | None:
        """Remember the facts of a file; return None if that was done before."""
        path = self.folder / name
        try:
            digest = digest_of_file(path)
            if self.timeline.has_file(name, digest):
                return None
            return Remembered(name, self.timeline.change(self._effect(path, digest), file=(name, digest)))
        except (UserError, OSError) as error:
            return Remembered(name, error=str(error))

    def _effect(self, path: Path, digest: str) -> Callable[[EpisodicGraph], Delta]:
        def effect(graph: EpisodicGraph) -> Delta:
            asked = asked_facts(graph, path, **self.options)
            if digest_of_file(path) != digest:
                raise UserError(f"{path}: it was changed while it was read, and is read again when it is complete")
            return addition(graph, asked)

        return effect
