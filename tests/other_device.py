"""A second device that computes on the CPU: what is on it may not meet CPU tensors, and holds no float64.

PyTorch sees its tensors on the device `meta`, so no compiled kernel serves them. An operation that mixes devices, or
creates a float64 tensor on this one, raises an error as a GPU without float64 (MPS) would.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = torch.device("meta")
aten = torch.ops.aten
INDEXING = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}  # as on a GPU
MIXING = {aten._to_copy.default, aten.copy_.default} | INDEXING
DOUBLES = {torch.float64, torch.complex128}


class Remote(Tensor):
    """A tensor on the second device; `local` holds its values."""

    @staticmethod
    def __new__(cls, local: Tensor) -> Remote:
        if local.dtype in DOUBLES:
            raise TypeError("the device has no float64")
        return Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, local.size(), strides=local.stride(), storage_offset=local.storage_offset(), dtype=local.dtype,
            device=DEVICE,
        )  # fmt: skip

    def __init__(self, local: Tensor) -> None:
        self.local = local

    def tolist(self) -> Any:
        return self.local.tolist()

    def __getitem__(self, key: Any) -> Tensor:
        """Index by lists too: PyTorch would put them on the device `meta`, without values."""
        keys = key if isinstance(key, tuple) else (key,)
        return super().__getitem__(tuple(torch.tensor(x) if isinstance(x, list) else x for x in keys))

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(function, args, kwargs or {})


class OtherDevice(TorchDispatchMode):
    """Inside, tensors that are created with `device=DEVICE` are on the second device."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(function, args, kwargs or {})


def dispatch(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operation on the values of its arguments; its results are on the device of the arguments."""
    given = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
    remote = [x for x in given if isinstance(x, Remote)]
    mixed = [x for x in given if not isinstance(x, Remote) and x.dim() > 0]
    if remote and mixed and function not in MIXING:
        raise RuntimeError(f"{function} got tensors on two devices")
    device = kwargs.get("device")
    is_remote = bool(remote) if device is None else torch.device(device) == DEVICE
    if device is not None:
        kwargs = kwargs | {"device": torch.device("cpu")}
    local_args, local_kwargs = tree_map(lambda x: x.local if isinstance(x, Remote) else x, (args, kwargs))
    out = function(*local_args, **local_kwargs)
    if function is torch.ops.aten.copy_.default or (function.overloadpacket.__name__.endswith("_") and given):
        return args[0]
    if not is_remote:
        return out
    return tree_map(lambda x: Remote(x.resolve_conj()) if isinstance(x, Tensor) else x, out)
