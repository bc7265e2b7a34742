"""Write and read the checkpoint of a training run: one safetensors file with JSON metadata."""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from recollect.errors import UserError
from recollect.io.atomic import explained_errors, replaced_file


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
    """Write named tensors and a JSON-compatible mapping to `path`, replacing an earlier checkpoint in one step."""
    with (
        explained_errors(path, "free some space; an earlier checkpoint is unchanged"),
        replaced_file(path) as temporary,
    ):
        write_tensors(temporary, tensors, {"run": json.dumps(plain)})


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the mapping that `write_checkpoint` wrote."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            plain: dict[str, Any] = json.loads((file.metadata() or {})["run"])
            return {name: file.get_tensor(name) for name in file.keys()}, plain  # noqa: SIM118
    except (safetensors.SafetensorError, OSError, KeyError, ValueError) as error:
        raise UserError(f"{path}: not a readable checkpoint ({error}); delete it and train again") from error


def read_settings(path: Path) -> dict[str, Any]:
    """Return the settings of the run that wrote a checkpoint, without reading its tensors."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            settings: dict[str, Any] = json.loads((file.metadata() or {})["run"])["settings"]
            return settings
    except (safetensors.SafetensorError, OSError, KeyError, ValueError) as error:
        raise UserError(f"{path}: not a readable checkpoint ({error}); delete it and train again") from error


def write_tensors(file: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write named tensors from any device and of any strides to a new safetensors file."""
    on_cpu = {name: tensor.contiguous().cpu() for name, tensor in tensors.items()}
    file.touch()
    mode = stat.S_IMODE(file.stat().st_mode)  # by the umask; safetensors makes files that only their owner can read
    safetensors.torch.save_file(on_cpu, file, metadata=metadata)
    file.chmod(mode)
