"""Tensors in memory-mapped files, for tables that are larger than memory.

The system reads a page of a file when it is touched, writes changed pages back, and drops pages when memory is short.
So a step of training that touches a few rows costs the memory of a few pages. The files have no name: they are scratch
space, and vanish with the process, however it ends.
"""

from __future__ import annotations

import math
import mmap
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recollect.errors import UserError

BLOCK_BYTES = 16 * 2**20  # written at a time


class Zeros(Protocol):
    """A function that allocates a tensor of zeros: `torch.zeros`, or that of `MappedTables`."""

    def __call__(
        self, shape: Sequence[int], /, *, dtype: torch.dtype, device: torch.device | str | None = None
    ) -> Tensor:
        """Return a tensor of zeros."""


class Tables:
    """Allocate embedding tables, and all that is as large, in memory."""

    def zeros(self, shape: Sequence[int], /, *, dtype: torch.dtype, device: torch.device | str | None = None) -> Tensor:
        """Return a tensor of zeros."""
        return torch.zeros(shape, dtype=dtype, device=device)

    @contextmanager
    def in_order(self) -> Iterator[None]:
        """Expect that tables are read and written from start to end inside the block, and row by row outside."""
        yield

    def prefetch(self, tensors: Iterable[Tensor], rows: Tensor) -> None:
        """Expect that the sorted rows (R,) of some tensors are read next."""


class MappedTables(Tables):
    """Allocate them in memory-mapped files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[int, mmap.mmap] = {}  # by the address of the tensor

    def zeros(self, shape: Sequence[int], /, *, dtype: torch.dtype, device: torch.device | str | None = None) -> Tensor:
        """Return a tensor of zeros in a file of its own."""
        if device is not None and torch.device(device).type != "cpu":
            raise UserError(f"tables in memory-mapped files are trained on the cpu; got the device {device}")
        length = math.prod(shape) * dtype.itemsize
        if not length:
            return torch.zeros(shape, dtype=dtype)
        mapped = self._map(length)
        tensor = torch.frombuffer(mapped, dtype=dtype).view(*shape)
        self._files[tensor.data_ptr()] = mapped
        return tensor

    def _map(self, length: int) -> mmap.mmap:
        """Return a new file of zeros, mapped.

        They are written, since pages of a file with holes would find their place on disk one by one, all over it, and
        a disk that is full by then would kill the process.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder, buffering=0) as file:
                block = memoryview(bytes(min(length, BLOCK_BYTES)))
                while (missing := length - file.tell()) > 0:
                    file.write(block[:missing])
                return mmap.mmap(file.fileno(), length)
        except OSError as error:
            raise UserError(
                f"{self.folder}: no file of {length:,} bytes for a table can be written here "
                f"({error.strerror or error}); free some space or choose another folder (--tables)"
            ) from error

    @contextmanager
    def in_order(self) -> Iterator[None]:
        """Expect that tables are read and written from start to end inside the block, and row by row outside.

        In order, pages are read ahead. A row that is touched reads its own page only.
        """
        self._advise("MADV_SEQUENTIAL")
        try:
            yield
        finally:
            self._advise("MADV_RANDOM")

    def _advise(self, advice: str) -> None:
        if hasattr(mmap, advice):  # not on every platform
            for file in self._files.values():
                file.madvise(getattr(mmap, advice))

    def prefetch(self, tensors: Iterable[Tensor], rows: Tensor) -> None:
        """Let the disk read the pages of sorted rows (R,) together, not one after another as each is touched."""
        if not hasattr(mmap, "MADV_WILLNEED"):
            return
        for tensor in tensors:
            file = self._files[tensor.data_ptr()]
            for first, length in _page_ranges(rows.numpy(), tensor[:1].nbytes):
                file.madvise(mmap.MADV_WILLNEED, first, length)


def _page_ranges(rows: NDArray[np.int64], row_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield start and length in bytes of the pages that each of the sorted rows (R,) is on, equal ones once."""
    first, last = (rows * row_bytes) // mmap.PAGESIZE, ((rows + 1) * row_bytes - 1) // mmap.PAGESIZE
    is_new = np.diff(first, prepend=-1) + np.diff(last, prepend=-1) > 0
    lengths = last[is_new] - first[is_new] + 1
    yield from zip((first[is_new] * mmap.PAGESIZE).tolist(), (lengths * mmap.PAGESIZE).tolist(), strict=True)
