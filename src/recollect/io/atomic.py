"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
from torch import Tensor


def write_text(file: Path, text: str) -> None:
    """Replace a file in one step."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}.tmp")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, file)


def fresh_folder(path: Path) -> Path:
    """An empty folder beside `path`, where something is written before it takes that place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = temporary_of(path)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def temporary_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp")


def write_tensors(file: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    ready = {name: tensor.contiguous().cpu() for name, tensor in tensors.items()}
    safetensors.torch.save_file(ready, file, metadata=metadata)


def sync(path: Path) -> None:
    """Make sure that a file or a directory's entries have reached the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
