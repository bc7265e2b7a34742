"""Random generators. Randomness is always an explicit argument, never the global state of PyTorch."""

from __future__ import annotations

import torch

from recollect.errors import UserError


def seeded(seed: int) -> torch.Generator:
    """Return a new CPU generator with the given seed."""
    if not 0 <= seed < 2**63:
        raise UserError(f"a seed is a whole number from 0 and below 2⁶³; got {seed}")
    return torch.Generator().manual_seed(seed)
