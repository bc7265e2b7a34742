"""Show a training run on the terminal."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from recollect.training.run import TrainingRun
from recollect.training.trainer import Epoch, Step


class ProgressBar:
    """A progress bar on standard error: epochs, facts per second, loss, validation MRR and time left.

    A context manager and a callback of a training run. It needs `rich`, which is imported when the bar is made.
    """

    def __init__(self, run: TrainingRun, *, console: Any = None) -> None:
        """`console` is a `rich.console.Console`; by default one on standard error."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        self._facts = len(run.graph.split("train"))
        self._epochs = run.recipe.epochs
        self._first: tuple[float, float] | None = None  # seconds and epochs completed at the first record
        self._mrr = ""  # the last validation MRR
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[metrics]}"),
            TimeRemainingColumn(),
        )
        self.progress = Progress(*columns, console=console or Console(stderr=True, emoji=False))
        self._task = self.progress.add_task(f"0/{self._epochs} epochs", total=self._epochs, metrics="")

    def __enter__(self) -> ProgressBar:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def on_record(self, record: Step | Epoch) -> None:
        """Update the bar."""
        done = record.epoch + record.seen / self._facts if isinstance(record, Step) else float(record.epoch)
        if isinstance(record, Epoch) and record.mrr is not None:
            self._mrr = f"  MRR {record.mrr:.3f}"
        metrics = f"{self._rate(done):,.0f} facts/s  loss {record.loss:.4f}{self._mrr}"
        description = f"{int(done)}/{self._epochs} epochs"
        self.progress.update(self._task, completed=done, description=description, metrics=metrics)

    def _rate(self, done: float) -> float:
        """Return facts per second since the first record; 0 at the first."""
        now = time.monotonic()
        if self._first is None:
            self._first = now, done
        start, done_then = self._first
        return (done - done_then) * self._facts / max(now - start, 1e-9)
