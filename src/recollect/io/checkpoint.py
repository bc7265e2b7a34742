"""A training run as one safetensors file, replaced in one step."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
from torch import Tensor

from recollect.errors import UserError
from recollect.io.atomic import fresh_folder, sync, temporary_of, write_tensors


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
    """Replace the checkpoint at `path` in one step."""
    temporary = fresh_folder(path)
    try:
        write_tensors(temporary / "run", tensors, {"run": json.dumps(plain)})
        sync(temporary / "run")
        os.replace(temporary / "run", path)
        sync(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_checkpoint(path: Path) -> None:
    """Remove a checkpoint, and what a kill during its writing may have left."""
    path.unlink(missing_ok=True)
    shutil.rmtree(temporary_of(path), ignore_errors=True)


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            plain: dict[str, Any] = json.loads((file.metadata() or {})["run"])
            return {name: file.get_tensor(name) for name in file.keys()}, plain  # noqa: SIM118
    except (safetensors.SafetensorError, OSError, KeyError, ValueError) as error:
        raise UserError(f"{path}: not a readable checkpoint ({error}); delete it and train again") from error
