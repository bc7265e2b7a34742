"""Callbacks: objects that receive every record of a training run, and two that send them to experiment trackers.

for record in run:
    for callback in callbacks:
        callback.on_record(record)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from recollect.errors import import_extra
from recollect.training.trainer import Epoch, Step


class Callback(Protocol):
    """Anything that receives training records."""

    def on_record(self, record: Step | Epoch) -> None:
        """Receive one record; called in the training thread."""


class TensorBoardCallback:
    """Write the loss of every step and epoch and the validation MRR as TensorBoard event files."""

    def __init__(self, folder: str | Path, writer: Any = None) -> None:
        """Write to `folder`, or to a given `SummaryWriter`."""
        if writer is None:
            module = import_extra(
                "torch.utils.tensorboard", "tensorboard", needed_by="TensorBoardCallback", extra="tensorboard"
            )
            writer = module.SummaryWriter(str(folder))
        self.writer = writer
        self.steps = 0

    def on_record(self, record: Step | Epoch) -> None:
        if isinstance(record, Step):
            self.steps += 1
            self.writer.add_scalar("loss/step", record.loss, self.steps)
            return
        for name, value in _metrics(record).items():
            self.writer.add_scalar(f"{name}/epoch", value, record.epoch)
        self.writer.flush()

    def close(self) -> None:
        """Finish the event file."""
        self.writer.close()


class MLflowCallback:
    """Log the loss of every epoch and the validation MRR to the active MLflow run."""

    def __init__(self, client: Any = None) -> None:
        """Log with the module `mlflow`, or with anything that has its `log_metrics`."""
        self.client = client or import_extra("mlflow", "mlflow", needed_by="MLflowCallback", extra="mlflow")

    def on_record(self, record: Step | Epoch) -> None:
        if isinstance(record, Epoch):
            self.client.log_metrics(_metrics(record), step=record.epoch)


def _metrics(record: Epoch) -> dict[str, float]:
    """Return the loss and, if it was measured, the validation MRR of an epoch."""
    metrics = {"loss": record.loss}
    if record.mrr is not None:
        metrics["valid_mrr"] = record.mrr
    return metrics
