"""The fitted parameters of a history as named tensors, and checks of such tensors before they are used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from recollect.graph.facts import KINDS, Facts
from recollect.graph.runs import Runs
from recollect.history.bins import COUNT, Ints, layout_of
from recollect.history.edges import Floats
from recollect.history.shares import COLUMNS

PREFIX = "history."
CLASSES = PREFIX + "classes"
FITTED = PREFIX + "fitted"


class Parameters(NamedTuple):
    """What is fitted: the class of every predicate and inverse (2P,), and a kernel and weights by asked slot."""

    classes: Ints
    kernels: dict[str, Floats]
    weights: dict[str, Floats]
    fitted: int | None = None  # predicates that kernels were fitted to; None: all


def kernel_shape(slot: str, classes: int, bins: int = COUNT) -> tuple[int, int, int]:
    """Return the shape (A, C, bins) of the kernel of an asked slot; C counts the classes of inverses too."""
    return classes if slot == "o" else classes // 2, classes, bins


def weights_shape(slot: str, classes: int) -> tuple[int, int]:
    """Return the shape of the weights of popularity: (A, columns), but (1, columns) where the predicate is asked."""
    return 1 if slot == "p" else kernel_shape(slot, classes)[0], COLUMNS[slot]


def to_tensors(parameters: Parameters) -> dict[str, Tensor]:
    """Return contiguous copies: history.classes int64, history.SLOT.kernel and history.SLOT.weights float32."""
    tensors = {CLASSES: torch.tensor(parameters.classes, dtype=torch.int64)}
    for slot, kernel in parameters.kernels.items():
        tensors[f"{PREFIX}{slot}.kernel"] = torch.tensor(kernel, dtype=torch.float32)
        tensors[f"{PREFIX}{slot}.weights"] = torch.tensor(parameters.weights[slot], dtype=torch.float32)
    if parameters.fitted is not None:
        tensors[FITTED] = torch.tensor([parameters.fitted])
    return tensors


def read_tensors(tensors: Mapping[str, Tensor], sizes: Mapping[str, int]) -> Parameters:
    """Return the parameters of tensors whose names begin with `history.`; raise ValueError unless all are sound."""
    classes = _read_classes(tensors, sizes["predicate"])
    count = int(classes.max(initial=-1)) + 1
    slots = [slot for slot in COLUMNS if f"{PREFIX}{slot}.kernel" in tensors]
    bins = _bin_count(tensors, slots)
    kernels = {slot: _read(tensors, f"{PREFIX}{slot}.kernel", kernel_shape(slot, count, bins)) for slot in slots}
    weights = {slot: _read(tensors, f"{PREFIX}{slot}.weights", weights_shape(slot, count)) for slot in slots}
    fitted = _read_fitted(tensors, classes)
    known = {CLASSES, FITTED, *(f"{PREFIX}{slot}.{part}" for slot in slots for part in ("kernel", "weights"))}
    for name in tensors:
        if name.startswith(PREFIX) and name not in known:
            raise ValueError(f"tensor {name} belongs to no kernel of a history")
    return Parameters(classes, kernels, weights, fitted)


def _read_fitted(tensors: Mapping[str, Tensor], classes: Ints) -> int | None:
    """Return how many predicates kernels were fitted to, if not to all: the others share the last class."""
    if FITTED not in tensors:
        return None
    tensor, predicates = tensors[FITTED], len(classes) // 2
    fitted = int(tensor[0]) if tensor.dtype == torch.int64 and tuple(tensor.shape) == (1,) else -1
    if not 0 <= fitted < predicates:
        raise ValueError(f"tensor {FITTED} is no number of predicates below {predicates}")
    later, earlier = classes[fitted:predicates], classes[:fitted]
    if (later != later[0]).any() or (earlier == later[0]).any():
        raise ValueError(f"tensor {CLASSES} does not give one class of their own to predicates from {fitted} on")
    return fitted


def _bin_count(tensors: Mapping[str, Tensor], slots: list[str]) -> int:
    """Return the number of bins of the kernels, which all have as many; raise ValueError if no layout has so many."""
    shapes = [tensors[f"{PREFIX}{slot}.kernel"].shape for slot in slots]
    return layout_of(shapes[0][2]).count if shapes and len(shapes[0]) == 3 else COUNT


def check_ids(stored: Facts | Runs, sizes: Mapping[str, int]) -> None:
    """Raise ValueError unless every id is in [0, size of its kind). Compiled loops do no bounds checks."""
    if isinstance(stored, Runs):
        if bool((stored.last < stored.first.t).any()):
            raise ValueError("a stored run ends before it begins")
        check_ids(stored.first.with_slot("t", stored.last), sizes)
    facts = stored.first if isinstance(stored, Runs) else stored
    for slot, kind in KINDS.items():
        ids = facts.column(slot)
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < sizes[kind]:
            raise ValueError(f"a stored fact has {kind} id {ids.min()} or {ids.max()}, but there are {sizes[kind]}")


def _read_classes(tensors: Mapping[str, Tensor], predicates: int) -> Ints:
    """Return the classes (2P,): 0 … n − 1, all in use, for predicates, and the same + n for their inverses."""
    if CLASSES not in tensors:
        raise ValueError(f"tensor {CLASSES} is missing")
    classes = tensors[CLASSES]
    if classes.dtype != torch.int64 or tuple(classes.shape) != (2 * predicates,):
        found = f"{tuple(classes.shape)} {classes.dtype}"
        raise ValueError(f"tensor {CLASSES} is {found}; {predicates} predicates need ({2 * predicates},) torch.int64")
    forward, inverse = classes.numpy().reshape(2, predicates)
    used = np.unique(forward)
    if not np.array_equal(used, np.arange(len(used))):
        raise ValueError(f"tensor {CLASSES} does not number the classes of predicates 0, 1, 2, …")
    if not np.array_equal(inverse, forward + len(used)):
        raise ValueError(f"tensor {CLASSES} gives an inverse another class than that of its predicate + {len(used)}")
    return classes.contiguous().numpy().copy()


def _read(tensors: Mapping[str, Tensor], name: str, shape: tuple[int, ...]) -> Floats:
    """Return one float32 tensor of finite, non-negative numbers as an array of this shape."""
    if name not in tensors:
        raise ValueError(f"tensor {name} is missing")
    tensor = tensors[name]
    if tensor.dtype != torch.float32 or tuple(tensor.shape) != shape:
        raise ValueError(f"tensor {name} is {tuple(tensor.shape)} {tensor.dtype}; wanted {shape} torch.float32")
    if not is_rate(tensor):
        raise ValueError(f"tensor {name} has numbers that are negative or not finite")
    return tensor.contiguous().numpy()


def is_rate(tensor: Tensor) -> bool:
    """Return whether all numbers are finite and at least 0, by the extremes: several times faster than `isfinite`."""
    if not tensor.numel():
        return True
    low, high = map(float, tensor.aminmax())  # NaN if any number is
    return low >= 0 and high < float("inf")
