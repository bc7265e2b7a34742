"""Show a training run on the terminal."""

from __future__ import annotations

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

        self._facts, self._epochs = len(run.graph.split("train")), run.recipe.epochs
        self._mrr = ""  # the last validation MRR
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[metrics]}"),
            TimeRemainingColumn(),
        )
        self.progress = Progress(*columns, console=console or Console(stderr=True, emoji=False))
        self._task = self.progress.add_task("", total=self._epochs * self._facts, metrics="")

    def __enter__(self) -> ProgressBar:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def on_record(self, record: Step | Epoch) -> None:
        """Update the bar, whose unit is a fact."""
        completed = record.epoch * self._facts + (record.seen if isinstance(record, Step) else 0)
        if isinstance(record, Epoch) and record.mrr is not None:
            self._mrr = f"  MRR {record.mrr:.3f}"
        facts_per_second = self.progress.tasks[0].speed or 0.0
        self.progress.update(
            self._task,
            completed=completed,
            description=f"{completed // self._facts}/{self._epochs} epochs",
            metrics=f"{facts_per_second:,.0f} facts/s  loss {record.loss:.4f}{self._mrr}",
        )
