"""Write and read the checkpoint of a training run: one safetensors file with JSON metadata.

Several processes write the rows that each owns to a file of its own, a shard, and then one writes the checkpoint, which
names the shards. Shards have new names in every checkpoint: until the new one is complete, the old one is.
"""

from __future__ import annotations

import glob
import json
import stat
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.io.atomic import explained_errors, replaced_file

SHARDS = "shards"  # the key of the shards of a checkpoint: their files, and the sizes of their tables
ROWS = "rows."  # + table: the ids of a shard's rows


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
    """Write named tensors and a JSON-compatible mapping to `path`, replacing an earlier checkpoint in one step."""
    with (
        explained_errors(path, "free some space; an earlier checkpoint is unchanged"),
        replaced_file(path) as temporary,
    ):
        write_tensors(temporary, tensors, {"run": json.dumps(plain)})


def read_checkpoint(path: Path, held: Mapping[str, Tensor] | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the mapping that `write_checkpoint` wrote, put together from its shards if it has some.

    `held` names the tables of which only some rows, sorted, are to be returned. Tensors are named group.table.
    """
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            plain: dict[str, Any] = json.loads((file.metadata() or {})["run"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        for name, rows in (held or {}).items():
            for key in [key for key in tensors if _table(key) == name]:
                tensors[key] = tensors[key][rows]
        for shard in plain.pop(SHARDS, []):
            _add_shard_(tensors, path.with_name(shard["file"]), shard["rows"], held or {})
    except (safetensors.SafetensorError, OSError, LookupError, TypeError, ValueError) as error:
        raise UserError(f"{path}: not a readable checkpoint ({error}); delete it and train again") from error
    return tensors, plain


def _add_shard_(tensors: dict[str, Tensor], path: Path, sizes: Mapping[str, int], held: Mapping[str, Tensor]) -> None:
    """Copy the rows of a shard to the tensors of a checkpoint; `sizes` counts the rows of the whole tables."""
    with safetensors.safe_open(path, framework="pt") as file:
        for key in file.keys():  # noqa: SIM118
            name = _table(key)
            if key.startswith(ROWS):
                continue
            ids, values = file.get_tensor(ROWS + name), file.get_tensor(key)
            wanted = held.get(name, torch.arange(sizes[name]))
            if key not in tensors:
                tensors[key] = values.new_zeros(len(wanted), *values.shape[1:])
            place = torch.searchsorted(wanted, ids).clamp(max=len(wanted) - 1)
            found = wanted[place] == ids
            tensors[key][place[found]] = values[found]


def _table(key: str) -> str:
    """Return the name of the table that a tensor of a checkpoint belongs to: optimizer.sum.entity -> entity."""
    return key.rpartition(".")[2]


def write_shard(path: Path, name: str, tensors: Mapping[str, Tensor], rows: Mapping[str, Tensor]) -> None:
    """Write the owned rows of some tables to the shard `name` of a checkpoint; rows[table] are their sorted ids."""
    with (
        explained_errors(path, "free some space; an earlier checkpoint is unchanged"),
        replaced_file(path.with_name(name)) as temporary,
    ):
        write_tensors(temporary, {**tensors, **{ROWS + table: ids for table, ids in rows.items()}})


def remove_shards(path: Path, *, kept: Collection[str] = ()) -> None:
    """Delete the shards next to a checkpoint that it does not name."""
    for shard in path.parent.glob(f"{glob.escape(path.name)}.shard-*"):
        if shard.name not in kept:
            shard.unlink(missing_ok=True)


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
