"""The seven models: each is its equation and, where its embeddings are not plain rows, a lift.

Axes are latent: `s:i` reads "the subject's embedding has axis i", `| ijk` adds a shared core tensor. Everything else
(scores, queries of every slot, gradients, projection to semantic memory) is derived from these lines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from recollect.engine import Zeros
from recollect.errors import UserError
from recollect.models.config import ModelConfig
from recollect.models.equation import Equation
from recollect.models.parameters import parameter_shapes
from recollect.models.tensor_model import TensorModel


class DistMult(TensorModel):
    """θ = Σ_r λ[r] a_s[r] a_p[r] a_o[r] a_t[r]."""

    episodic = Equation.parse("s:r p:r o:r t:r | r")
    semantic = Equation.parse("s:r p:r o:r | r")
    norm = 3


class ComplEx(TensorModel):
    """θ = Re Σ_r a_s[r] a_p[r] conj(a_o[r]) a_t[r], all complex."""

    episodic = Equation.parse("s:r p:r o:r t:r")
    semantic = Equation.parse("s:r p:r o:r")
    components = 2
    norm = 3

    def lift(self, slot: str, rows: Tensor) -> Tensor:
        embedding = torch.view_as_complex(rows)
        return embedding.conj() if slot == "o" else embedding

    def lower(self, factors: Tensor) -> Tensor:
        return torch.view_as_real(factors.resolve_conj())


class HolE(TensorModel):
    """θ = a_t · (a_p ⋆ (a_s ⋆ a_o)) = 1/d Σ_k T_k P_k S_k conj(O_k), ⋆ circular correlation, S = FFT(a_s) …"""

    episodic = Equation.parse("s:r p:r o:r t:r")
    semantic = Equation.parse("s:r p:r o:r")

    def lift(self, slot: str, rows: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(rows)
        if slot in "pt":
            return spectrum
        dim = rows.shape[-1]
        # rfft drops the conjugate half: every bin counts twice except the first and, for even dim, the last.
        # √ of that weight and of 1/dim goes to each entity, so that both spectra are scaled alike.
        weight = torch.full((spectrum.shape[-1],), (2 / dim) ** 0.5, dtype=rows.dtype, device=rows.device)
        weight[0] = dim**-0.5
        if dim % 2 == 0:
            weight[-1] = dim**-0.5
        return (spectrum if slot == "s" else spectrum.conj()) * weight

    def lower(self, factors: Tensor) -> Tensor:
        return torch.fft.irfft(factors, n=self.config.dim)


class Rescal(TensorModel):
    """θ = Σ_ij a_s[i] G_p[i,j] a_o[j]: every predicate has a matrix of its own."""

    semantic = Equation.parse("s:i p:ij o:j")


class Tucker(TensorModel):
    """θ = Σ_lijk a_t[l] a_s[i] a_p[j] a_o[k] G[l,i,j,k]: one core tensor for all facts."""

    episodic = Equation.parse("s:i p:j o:k t:l | lijk")
    semantic = Equation.parse("s:i p:j o:k | ijk")


class Tree(TensorModel):
    """θ = Σ a_t[a] a_s[b] G₁[a,b,c] G_p[c,d] G₂[d,e,f] a_o[e] a_t[f]: time occurs in both subtrees."""

    episodic = Equation.parse("t:a s:b p:cd o:e t:f | abc def")
    semantic = Equation.parse("s:b p:cd o:e | bc de")


class ConT(TensorModel):
    """θ = Σ_ijk a_s[i] a_p[j] a_o[k] G_t[i,j,k]: every time has a core tensor of its own."""

    episodic = Equation.parse("s:i p:j o:k t:ijk")
    semantic = Equation.parse("s:i p:j o:k | ijk")
    semantic_counterpart = Rescal


MODELS: dict[str, type[TensorModel]] = {
    "distmult": DistMult,
    "hole": HolE,
    "complex": ComplEx,
    "rescal": Rescal,
    "tucker": Tucker,
    "tree": Tree,
    "cont": ConT,
}


def parse_model(name: str) -> type[TensorModel]:
    """Return the model class of that name, in any case."""
    if name.lower() not in MODELS:
        raise UserError(f"unknown model {name!r}; choose one of {', '.join(MODELS)}")
    return MODELS[name.lower()]


def build_model(
    config: ModelConfig,
    sizes: Mapping[str, int],
    *,
    device: torch.device | str | None = None,
    generator: torch.Generator | None = None,
    zeros: Zeros = torch.zeros,
) -> TensorModel:
    """Return a new model with Xavier-uniform weights drawn from `generator`, in tables allocated by `zeros`."""
    return parse_model(config.model)(sizes, config, device=device, generator=generator, zeros=zeros)


def parameter_count(config: ModelConfig, sizes: Mapping[str, int]) -> int:
    """Return the number of learned parameters.

    >>> sizes = {"entity": 258, "predicate": 20, "time": 72}
    >>> parameter_count(ModelConfig(model="cont", dim=40), sizes) == (258 + 20) * 40 + 72 * 40**3
    True
    """
    shapes = parameter_shapes(parse_model(config.model), config, sizes)
    return sum(math.prod(shape) for shape in shapes.values())
