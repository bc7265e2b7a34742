"""Tensors in memory-mapped files, for tables that are larger than memory.

The system reads a page of a file when it is touched, writes changed pages back, and drops pages when memory is short.
So a step of training that touches a few rows costs the memory of a few pages. The files have no name: they are scratch
space, and vanish with the process, however it ends.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from recollect.errors import UserError


class Zeros(Protocol):
    """A function that allocates a tensor of zeros: `torch.zeros`, or that of `MappedTensors`."""

    def __call__(
        self, shape: Sequence[int], /, *, dtype: torch.dtype, device: torch.device | str | None = None
    ) -> Tensor:
        """Return a tensor of zeros."""


class MappedTensors:
    """Allocate tensors in memory-mapped files of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def zeros(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device | str | None = None) -> Tensor:
        """Return a tensor of zeros in a file of its own, as `torch.zeros` returns one in memory."""
        if device is not None and torch.device(device).type != "cpu":
            raise UserError(f"tables in memory-mapped files are trained on the cpu; got the device {device}")
        length = math.prod(shape) * dtype.itemsize
        if not length:
            return torch.zeros(shape, dtype=dtype)
        return torch.frombuffer(self._map(length), dtype=dtype).view(*shape)

    def _map(self, length: int) -> mmap.mmap:
        """Return a new file of zeros, mapped; its space is reserved, since a full disk would kill the process later."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder) as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, length)
                else:
                    file.truncate(length)
                mapped = mmap.mmap(file.fileno(), length)
        except OSError as error:
            raise UserError(
                f"{self.folder}: no file of {length:,} bytes for a table can be written here "
                f"({error.strerror or error}); free some space or choose another folder (--tables)"
            ) from error
        if hasattr(mmap, "MADV_RANDOM"):  # a touched row reads its page and not, as in a file read in order, megabytes
            mapped.madvise(mmap.MADV_RANDOM)
        return mapped
