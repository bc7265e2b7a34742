"""The processes that train together: who they are, how they add and exchange tensors, and how many bytes each sends."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from recollect.errors import UserError

TIMEOUT = timedelta(days=7)  # processes wait while one fits a history; one that dies closes its connections at once
REPORT_TIMEOUT = timedelta(seconds=5)
VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torchrun sets


@dataclass
class Processes:
    """This process among all that train together. Every method but `is_first` is called by all of them in turn."""

    rank: int
    count: int
    sent: Counter[str] = field(default_factory=Counter)  # bytes that this process sent, by purpose

    @property
    def is_first(self) -> bool:
        """Return whether this is the process that prints and writes."""
        return self.rank == 0

    def sum_(self, tensors: Sequence[Tensor], purposes: Sequence[str]) -> list[Tensor]:
        """Return the sums of tensors of equal dtype over all processes, by one exchange.

        A ring sends 2 (N − 1) / N of the bytes from every process; those of each tensor count for its purpose.
        """
        for tensor, purpose in zip(tensors, purposes, strict=True):
            self._count(purpose, 2 * (self.count - 1) / self.count * tensor.nbytes)
        bucket = torch.cat([tensor.reshape(-1) for tensor in tensors])
        if bucket.numel():
            self._add_up_(bucket)
        parts = bucket.split([tensor.numel() for tensor in tensors])
        return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]

    def exchange(self, parts: Sequence[Tensor], counts: Sequence[int], purpose: str) -> list[Tensor]:
        """Send parts[j] (n_j, …) to process j; return what each process sent to this one: (counts[j], …)."""
        row = parts[0].shape[1:]
        sent, width = torch.cat([part.flatten(1) for part in parts]), row.numel()
        others = sum(len(part) for rank, part in enumerate(parts) if rank != self.rank)
        self._count(purpose, others * width * sent.itemsize)
        received = sent.new_empty(sum(counts), width)
        self._trade_(received, sent, list(counts), [len(part) for part in parts])
        return [part.view(-1, *row) for part in received.split(list(counts))]

    def send_to_first(self, tensor: Tensor, source: int, purpose: str) -> None:
        """Send a tensor from process `source` to the first one, which receives it in place."""
        if self.rank == source:
            self._count(purpose, tensor.nbytes)
            dist.send(tensor.contiguous(), 0)
        elif self.is_first:
            dist.recv(tensor, source)

    def by_first(self, task: Callable[[], Any]) -> Any:
        """Return what a task of the first process returns, a JSON-compatible value; all raise its UserError."""
        value, problem = None, None
        if self.is_first:
            try:
                value = task()
            except UserError as error:
                problem = str(error)
        value, problem = self._broadcast([value, problem])
        if problem is not None:
            raise UserError(problem)
        return value

    def _broadcast(self, value: Any) -> Any:
        """Return a JSON-compatible value of the first process in all of them."""
        text = torch.tensor(list(json.dumps(value if self.is_first else None).encode()))
        (length,) = self.sum_([torch.tensor([len(text)]) * self.is_first], ["values"])
        content = text if self.is_first else torch.zeros(int(length), dtype=torch.int64)
        (total,) = self.sum_([content], ["values"])
        return json.loads(bytes(total.tolist()))

    def any(self, *flags: bool) -> list[bool]:
        """Return, for each flag, whether it is set in any process."""
        votes = torch.tensor(flags, dtype=torch.float32)
        self._add_up_(votes)
        return [bool(vote) for vote in votes]

    def wait(self) -> None:
        """Wait until every process is here."""
        self.any(False)

    def _add_up_(self, tensor: Tensor) -> None:
        """Replace a tensor by its sum over all processes."""
        if self.count > 1:
            dist.all_reduce(tensor)

    def _trade_(self, received: Tensor, sent: Tensor, received_counts: list[int], sent_counts: list[int]) -> None:
        """Send consecutive rows to each process, and receive such rows from each."""
        if self.count > 1:
            dist.all_to_all_single(received, sent.contiguous(), received_counts, sent_counts)
        else:
            received.copy_(sent)

    def _count(self, purpose: str, size: float) -> None:
        self.sent[purpose] += round(size)


ALONE = Processes(0, 1)  # a process that trains by itself; its exchanges are copies


def is_launched() -> bool:
    """Return whether torchrun, or anything that sets the same variables, started this process with others."""
    return all(name in os.environ for name in VARIABLES)


@contextmanager
def joined_processes() -> Iterator[Processes]:
    """Connect to the other processes that torchrun started, over gloo on CPUs and nccl where there are GPUs."""
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    by_launcher = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = _store(is_master=rank == 0 and not by_launcher, timeout=TIMEOUT)
    dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=TIMEOUT)
    try:
        yield Processes(rank, count)
    finally:
        dist.destroy_process_group()


def is_first_report() -> bool:
    """Return whether no process that torchrun started has called this before."""
    try:
        return bool(_store(is_master=False, timeout=REPORT_TIMEOUT).add("errors", 1) == 1)
    except RuntimeError:  # the process that held the store is gone
        return True


def _store(*, is_master: bool, timeout: timedelta) -> Any:
    """Return the store by which processes find each other: new keys whenever torchrun starts them again."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(address, port, is_master=is_master, timeout=timeout)  # type: ignore[attr-defined]
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"recollect/{attempt}", store)  # type: ignore[attr-defined]
