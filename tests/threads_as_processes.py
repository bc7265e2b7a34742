"""Processes that are threads of this one: what they exchange goes through shared lists."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from recollect.training.distributed.processes import Processes


class Threads:
    """`count` threads that meet at every exchange."""

    def __init__(self, count: int) -> None:
        self.count, self.barrier = count, threading.Barrier(count)
        self.offered: list[Any] = [None] * count

    def run(self, body: Callable[[Processes], Any]) -> list[Any]:
        """Return what `body` returns in each thread; raise the first error of any."""
        results: list[Any] = [None] * self.count
        errors: list[BaseException] = []

        def work(rank: int) -> None:
            torch.set_num_threads(1)
            try:
                results[rank] = body(ThreadProcess(rank, self.count, threads=self))
            except BaseException as error:
                errors.append(error)
                self.barrier.abort()

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(self.count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise next((error for error in errors if not isinstance(error, threading.BrokenBarrierError)), errors[0])
        return results

    def swap(self, rank: int, value: Any) -> list[Any]:
        """Return what all threads offer, by rank."""
        self.offered[rank] = value
        self.barrier.wait()
        values = list(self.offered)
        self.barrier.wait()
        return values


class ThreadProcess(Processes):
    """One of several threads in the place of a process."""

    def __init__(self, rank: int, count: int, threads: Threads) -> None:
        super().__init__(rank, count)
        self.threads = threads

    def _add_up_(self, tensor: torch.Tensor) -> None:
        parts = self.threads.swap(self.rank, tensor.clone())
        tensor.copy_(torch.stack(parts).sum(dim=0))

    def _trade_(
        self, received: torch.Tensor, sent: torch.Tensor, received_counts: list[int], sent_counts: list[int]
    ) -> None:
        offers = self.threads.swap(self.rank, sent.split(sent_counts))
        parts = [offer[self.rank] for offer in offers]
        assert [len(part) for part in parts] == received_counts
        received.copy_(torch.cat(parts))

    def send_to_first(self, tensor: torch.Tensor, source: int, purpose: str) -> None:
        offers = self.threads.swap(self.rank, tensor)
        if self.is_first:
            tensor.copy_(offers[source])

    def wait(self) -> None:
        self.threads.swap(self.rank, None)
