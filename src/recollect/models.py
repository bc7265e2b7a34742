"""The seven models: each is its equation and, where needed, a lift; scoring of every slot is derived.

A fact's factors are rows of three tables (entity, predicate, time); subject and object share one.
`score` contracts all factors. `score_against` contracts all but the open slot's into a query and takes
one real matrix product with the candidates, so both come from the same equation and cannot disagree.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from recollect.contraction import Contraction, most_counts, without, work_numbers
from recollect.errors import UserError
from recollect.facts import KINDS, SLOT_NAMES, Facts
from recollect.indicator import Indicator, einsum
from recollect.kernels import is_native, pair_scores, row_dot, take
from recollect.seeds import seeded

FORMS = ("episodic", "semantic")
QUERIES = 16384  # facts whose queries are made at a time
WORK_BYTES = 32 * 2**20  # without gradients, facts are scored in pieces whose factors fit in this


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """The length of the latent vectors of entities, predicates and times.

    >>> Ranks.of(40, time=10)
    Ranks(entity=40, predicate=40, time=10)
    """

    entity: int
    predicate: int
    time: int

    @classmethod
    def of(cls, entity: int, *, predicate: int | None = None, time: int | None = None) -> Ranks:
        """Predicates and times take the entities' rank unless told."""
        return cls(
            entity=entity,
            predicate=entity if predicate is None else predicate,
            time=entity if time is None else time,
        )

    def __post_init__(self) -> None:
        if min(self.entity, self.predicate, self.time) < 1:
            raise UserError(f"a rank is a whole number from 1; got {self}")


class TensorModel(nn.Module):
    """θ from an equation over the rows of three tables and shared cores."""

    episodic: ClassVar[Indicator | None] = None
    semantic: ClassVar[Indicator | None] = None
    parts: ClassVar[int] = 1  # 2: a table holds real and imaginary parts
    counterpart: ClassVar[type[TensorModel] | None] = None  # the semantic model that a time makes of it, if not itself

    entity: nn.Parameter
    predicate: nn.Parameter
    time: nn.Parameter
    core0: nn.Parameter

    def __init__(
        self,
        sizes: Mapping[str, int],
        ranks: Ranks | int,
        *,
        form: str = "episodic",
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.sizes = dict(sizes)
        self.ranks = ranks if isinstance(ranks, Ranks) else Ranks.of(ranks)
        self.form = form
        self.indicator = self.equation(form)
        for name, shape in self.shapes(self.sizes, self.ranks, form).items():
            weight = torch.empty(shape, dtype=dtype)
            xavier_(weight, generator=generator)
            self.register_parameter(name, nn.Parameter(weight.to(device)))

    @classmethod
    def equation(cls, form: str) -> Indicator:
        """The model's equation in the episodic (s p o t) or semantic (s p o) form."""
        if form not in FORMS:
            raise UserError(f"unknown form {form!r}; choose one of {', '.join(FORMS)}")
        indicator: Indicator | None = getattr(cls, form)
        if indicator is None:
            have = ", ".join(name for name, model in MODELS.items() if getattr(model, form))
            raise UserError(f"{cls.__name__} has no {form} form; models that have one: {have}")
        return indicator

    @classmethod
    def shapes(cls, sizes: Mapping[str, int], ranks: Ranks, form: str = "episodic") -> dict[str, tuple[int, ...]]:
        """The shape of every parameter, by name, before any memory is taken."""
        indicator = cls.equation(form)
        owners = {axis: cls._owners(axis, indicator) for _, axes in indicator.factors for axis in axes}
        length = {axis: cls._length(kinds, ranks) for axis, kinds in owners.items()}
        for kind in vars(ranks).keys() - set().union(*owners.values()):
            if getattr(ranks, kind) != ranks.entity:
                raise UserError(f"the {form} {cls.__name__} has no {kind} rank of its own; got {ranks}")
        shapes: dict[str, tuple[int, ...]] = {}
        for slot, axes in indicator.factors:
            parts = (cls.parts,) if cls.parts > 1 else ()
            shapes[KINDS[slot]] = (sizes[KINDS[slot]], *(length[axis] for axis in axes), *parts)
        for number, axes in enumerate(indicator.cores):
            shapes[f"core{number}"] = tuple(length[axis] for axis in axes)
        return shapes

    @classmethod
    def _owners(cls, axis: str, indicator: Indicator) -> set[str]:
        """The kinds whose rank an axis has: those whose smallest factors carry it."""
        carriers = [(len(axes), KINDS[slot]) for slot, axes in indicator.factors if axis in axes]
        return {kind for size, kind in carriers if size == min(carriers)[0]}

    @classmethod
    def _length(cls, kinds: set[str], ranks: Ranks) -> int:
        lengths: set[int] = {getattr(ranks, kind) for kind in kinds}
        if len(lengths) > 1:
            raise UserError(f"{cls.__name__} needs one rank for {' and '.join(sorted(kinds))}; got {ranks}")
        return lengths.pop()

    @classmethod
    def batch_numbers(
        cls, sizes: Mapping[str, int], ranks: Ranks, facts: int, slots: str, form: str = "episodic"
    ) -> int:
        """About how many numbers the work on a batch makes until the queries of these slots are there."""
        indicator, shapes = cls.equation(form), cls.shapes(sizes, ranks, form)
        weights = [shapes[KINDS[slot]][1:] for slot, _ in indicator.factors]
        weights += [shapes[f"core{number}"] for number in range(len(indicator.cores))]
        axes = {
            axis: n
            for (_, names), shape in zip(indicator.terms, weights, strict=True)
            for axis, n in zip(names, shape, strict=False)
        }
        counts = most_counts(indicator, sizes, facts)
        return cls.parts * sum(
            work_numbers(indicator.terms, axes, counts, without(indicator.terms, slot)) for slot in slots
        )

    @classmethod
    def parameter_count(cls, sizes: Mapping[str, int], ranks: Ranks | int, form: str = "episodic") -> int:
        """How many numbers the model learns.

        >>> ConT.parameter_count({"entity": 258, "predicate": 20, "time": 72}, 40) == (258 + 20) * 40 + 72 * 40**3
        True
        """
        ranks = ranks if isinstance(ranks, Ranks) else Ranks.of(ranks)
        return sum(math.prod(shape) for shape in cls.shapes(sizes, ranks, form).values())

    def lift(self, slot: str, rows: Tensor) -> Tensor:
        """Table rows (…, shape) as the factor of a slot (…, axes); the identity unless a model says otherwise."""
        return rows

    def lower(self, slot: str, factor: Tensor) -> Tensor:
        """The table rows whose lift is this factor."""
        return factor

    def check_projectable(self) -> None:
        """Refuse a model that is not linear in one time."""
        if self.form != "episodic" or len(self.indicator.occurrences("t")) > 1:
            raise UserError(
                f"the {self.form} {type(self).__name__} is not linear in one time, so it has no projection; "
                f"models that have one: {', '.join(projectable())}"
            )

    def at_time(self, row: Tensor) -> TensorModel:
        """The semantic model that is left when time is fixed: θ[s,p,o] = θ[s,p,o,t] for a time with these parameters.

        θ is linear in the time's row, so a sum of rows gives the sum of scores: this is the paper's projection. Time
        is contracted with the core where there is one (DistMult, Tucker), else with every predicate (ComplEx, HolE;
        ConT, whose predicates become the matrices of RESCAL).
        """
        self.check_projectable()
        kind = self.counterpart or type(self)
        ours, theirs = self.indicator, kind.equation("semantic")
        # the same axis by the name that either equation gives it; a matrix takes the names of what it joins
        name = {b: a for slot in "pso" for a, b in zip(ours.axes(slot), theirs.axes(slot), strict=False)}
        weights: dict[str, Tensor] = {"entity": self.entity, "predicate": self.predicate}
        time, axes = self.lift("t", row[None])[0], ours.axes("t")
        with torch.no_grad():
            if theirs.cores:
                left = "".join(name[axis] for axis in theirs.cores[0])
                weights["core0"] = einsum(f"{axes},{ours.cores[0]}->{left}", time, self.core0)
            else:
                left = "".join(name[axis] for axis in theirs.axes("p"))
                lifted = einsum(f"{axes},N{ours.axes('p')}->N{left}", time, self.lift("p", self.predicate))
                weights["predicate"] = self.lower("p", lifted)
        ranks = Ranks.of(self.ranks.entity) if self.counterpart else replace(self.ranks, time=self.ranks.entity)
        model = kind(self.sizes, ranks, form="semantic", dtype=self.dtype, device=self.device, generator=seeded(0))
        model.load_state_dict({key: value.detach().contiguous() for key, value in weights.items()})
        return model

    def score(self, facts: Facts) -> Tensor:
        """θ[s,p,o,t] of each fact: (B,)."""

        def scores(work: Contraction, _: slice) -> Tensor:
            theta = work.score()
            return (theta.real if theta.is_complex() else theta)[:, None]

        return self._in_pieces(facts, 1, None, scores)[:, 0]

    def score_against(self, facts: Facts, slot: str, candidates: Tensor | None = None) -> Tensor:
        """Entry (b, n) is θ of fact b with `slot` replaced by candidate n.

        Candidates: None for all ids (B, N); (N,) ids shared by all facts (B, N); (B, K) ids of each fact (B, K).
        """
        if slot not in self.indicator.slots:
            raise UserError(f"the {self.form} {type(self).__name__} has no {SLOT_NAMES.get(slot, slot)} slot")
        if candidates is not None and candidates.dim() == 2:
            columns, own = candidates.shape[1], candidates.to(self.device)
            if self.is_wide(slot):  # a query would be as large as a core: score the facts that the candidates make
                return self.score(_made(facts, slot, candidates)).view(candidates.shape)
            return self._in_pieces(facts, columns, slot, lambda work, piece: self._against_own(work, slot, own[piece]))
        table = self._table(slot)
        value = self.lift(slot, table if candidates is None else take(table, candidates.to(self.device)))
        if self.is_wide(slot):
            return self._in_pieces(facts, len(value), slot, lambda work, _: work.against(slot, value), value)
        shared = _facing(value)
        return self._in_pieces(facts, len(value), slot, lambda work, _: self.query(work, slot) @ shared.T)

    def blocks_against(self, facts: Facts, slot: str, rows: int) -> Iterator[Tensor]:
        """`score_against` all ids, so many facts at a time; a block is overwritten by the next. No gradient."""
        if self.is_wide(slot) or slot not in self.indicator.slots:
            yield from (self.score_against(block, slot) for block in facts.split(rows))
            return
        with torch.no_grad():
            shared = self.rows(slot)
            buffer = shared.new_empty(min(rows, len(facts)), len(shared))
            # queries are small beside scores: many at once share more of their work
            for piece in facts.split(max(rows, QUERIES)):
                query = self._in_pieces(piece, shared.shape[1], slot, lambda work, _: self.query(work, slot))
                for block in query.split(rows):
                    yield torch.mm(block, shared.T, out=buffer[: len(block)])

    def score_corrupted(
        self, facts: Facts, corrupted: Mapping[str, Tensor], counts: Mapping[str, int] | None = None
    ) -> tuple[Tensor, Tensor]:
        """θ of each fact (B,) and of its corruptions, the ids of each slot in turn (B, ΣK); common work done once."""
        work, true, false = self.contraction(facts, counts), None, []
        if self.indicator.is_diagonal and corrupted.keys() <= {"s", "o"} and is_native(self._table("s")):
            return self._score_pairs(work, corrupted)
        for slot, ids in corrupted.items():
            # the true id comes along as the first candidate: one query serves the fact and its corruptions
            own = torch.cat([facts.column(slot)[:, None], ids], dim=1) if true is None else ids
            if self.is_wide(slot):
                scores = self.contraction(_made(facts, slot, own)).score().view(own.shape)
            else:
                scores = self._against_own(work, slot, own.to(self.device))
            if true is None:
                true, scores = scores[:, 0], scores[:, 1:]
            false.append(scores)
        assert true is not None
        return true, torch.cat(false, dim=1)

    def _score_pairs(self, work: Contraction, corrupted: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The same for a sum over one axis with other subjects and objects only: in one sweep over the facts."""
        none = work.ids["s"].new_empty(len(work.ids["s"]), 0)
        others = [corrupted.get(slot, none) for slot in "so"]
        (subjects, s), (objects, o) = ((work.factor(slot, work.ids[slot])) for slot in "so")
        if subjects is not work.factor("s", others[0])[0] or objects is not work.factor("o", others[1])[0]:
            subjects, objects = (self.lift(slot, self._table(slot)).resolve_conj() for slot in "so")
            s, o = work.ids["s"], work.ids["o"]
        scores = pair_scores(work.query("so").flatten(1), subjects, s, objects, o, *others)
        return scores[:, 0], scores[:, 1:]

    def row_numbers(self, slot: str) -> int:
        """How many numbers a row of the slot's table has."""
        return self._table(slot)[:1].numel()

    def is_wide(self, slot: str) -> bool:
        """Whether a row of the slot is a matrix or more."""
        return len(self.indicator.axes(slot)) > 1

    def contraction(self, facts: Facts, counts: Mapping[str, int] | None = None) -> Contraction:
        """These facts, on their way to scores."""
        there = facts.to(self.device)

        def lifted(slot: str, ids: Tensor) -> tuple[Tensor, Tensor]:
            """Rows of a slot's factor and where the rows of `ids` are among them."""
            table = self._table(slot)
            if ids.numel() and not (int(ids.min()) >= 0 and int(ids.max()) < len(table)):  # the kernels do not look
                raise IndexError(f"{SLOT_NAMES[slot]} ids must be from 0 to {len(table) - 1}")
            if not ids.numel() or 4 * ids.numel() >= len(table) or type(self).lift is TensorModel.lift:
                if slot not in tables:
                    tables[slot] = self.lift(slot, table).resolve_conj()
                return tables[slot], ids
            each = torch.arange(ids.numel(), device=self.device).view(ids.shape)
            return self.lift(slot, take(table, ids.reshape(-1))).resolve_conj(), each

        tables: dict[str, Tensor] = {}
        return Contraction(self.indicator, there, lifted, self._cores(), counts)

    def query(self, work: Contraction, slot: str) -> Tensor:
        """Real rows whose products with the real rows of a slot's candidates are scores: (B, width)."""
        return real_rows(work.query(slot).flatten(1))

    def _against_own(self, work: Contraction, slot: str, own: Tensor) -> Tensor:
        """θ of each fact with its own candidates of a slot that is not wide: (B, K)."""
        rows, own = work.factor(slot, own)
        return row_dot(self.query(work, slot), _facing(rows), own)

    def rows(self, slot: str) -> Tensor:
        """All candidates of a slot that is not wide, as real rows that face queries: (N, width)."""
        return _facing(self.lift(slot, self._table(slot)))

    def part(self, tables: Mapping[str, Tensor]) -> TensorModel:
        """The same equation with other rows in some tables; its parameters are fresh leaves."""
        part = copy.copy(self)
        values = {name: parameter.detach() for name, parameter in self.named_parameters()} | dict(tables)
        part._parameters = {name: nn.Parameter(value) for name, value in values.items()}
        part.sizes = self.sizes | {kind: len(table) for kind, table in tables.items()}
        return part

    def _in_pieces(
        self,
        facts: Facts,
        columns: int,
        slot: str | None,
        scores: Callable[[Contraction, slice], Tensor],
        candidates: Tensor | None = None,
    ) -> Tensor:
        """The scores of facts, at once or, without gradients, in pieces whose work fits in WORK_BYTES."""
        work, n = self.contraction(facts), len(facts)
        pieces = 1
        if not torch.is_grad_enabled():
            pieces = min(n, -(-work.numbers(slot, candidates) * self.dtype.itemsize // WORK_BYTES))
        if pieces <= 1:
            return scores(work, slice(None))
        # into one block: small results kept between large pieces of work would scatter the heap
        out = torch.empty(n, columns, dtype=self.dtype, device=self.device)
        rows = -(-n // pieces)
        for start in range(0, n, rows):
            piece = slice(start, start + rows)
            out[piece] = scores(self.contraction(facts[piece]), piece)
        return out

    def _table(self, slot: str) -> Tensor:
        table: Tensor = getattr(self, KINDS[slot])
        return table

    def _cores(self) -> list[Tensor]:
        return [getattr(self, f"core{number}") for number in range(len(self.indicator.cores))]

    @property
    def dtype(self) -> torch.dtype:
        return self._table("s").dtype

    @property
    def device(self) -> torch.device:
        return self._table("s").device

    def as_modelled(self, facts: Facts) -> Facts:
        """Facts as this model tells them apart: the semantic form knows no times."""
        return facts if "t" in self.indicator.slots else facts.with_slot("t", 0)

    def spec(self) -> dict[str, Any]:
        """What is needed, beside weights and sizes, to build the same model again."""
        dtype = str(self.dtype).removeprefix("torch.")
        name = next(name for name, model in MODELS.items() if model is type(self))
        return {"model": name, "form": self.form, "ranks": vars(self.ranks), "dtype": dtype}


class DistMult(TensorModel):
    """θ = Σ_r λ[r] a_s[r] a_p[r] a_o[r] a_t[r]."""

    episodic = Indicator.parse("s:r p:r o:r t:r | r")
    semantic = Indicator.parse("s:r p:r o:r | r")


class ComplEx(TensorModel):
    """θ = Re Σ_r a_s[r] a_p[r] conj(a_o[r]) a_t[r], all complex."""

    episodic = Indicator.parse("s:r p:r o:r t:r")
    semantic = Indicator.parse("s:r p:r o:r")
    parts = 2

    def lift(self, slot: str, rows: Tensor) -> Tensor:
        a = torch.view_as_complex(rows)
        return a.conj() if slot == "o" else a

    def lower(self, slot: str, factor: Tensor) -> Tensor:
        return torch.view_as_real((factor.conj() if slot == "o" else factor).resolve_conj())


class HolE(TensorModel):
    """θ = a_t · (a_p ⋆ (a_s ⋆ a_o)) = 1/d Σ_k T_k P_k S_k conj(O_k), ⋆ circular correlation, S = FFT(a_s) …"""

    episodic = Indicator.parse("s:r p:r o:r t:r")
    semantic = Indicator.parse("s:r p:r o:r")

    def lift(self, slot: str, rows: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(rows)
        if slot != "o":
            return spectrum
        d = rows.shape[-1]
        # rfft leaves out the conjugate half: every bin counts twice but the first and, for even d, the last
        weight = torch.full((spectrum.shape[-1],), 2 / d, dtype=rows.dtype, device=rows.device)
        weight[0] = 1 / d
        if d % 2 == 0:
            weight[-1] = 1 / d
        return spectrum.conj() * weight

    def lower(self, slot: str, factor: Tensor) -> Tensor:
        assert slot != "o", "an object's spectrum is weighted"
        return torch.fft.irfft(factor, n=self.ranks.entity)


class Rescal(TensorModel):
    """θ = Σ_ij a_s[i] G_p[i,j] a_o[j]: every predicate owns a matrix."""

    semantic = Indicator.parse("s:i p:ij o:j")


class Tucker(TensorModel):
    """θ = Σ_lijk a_t[l] a_s[i] a_p[j] a_o[k] G[l,i,j,k]: one core for all."""

    episodic = Indicator.parse("s:i p:j o:k t:l | lijk")
    semantic = Indicator.parse("s:i p:j o:k | ijk")


class Tree(TensorModel):
    """θ = Σ a_t[a] a_s[b] G₁[a,b,c] G_p[c,d] G₂[d,e,f] a_o[e] a_t[f]: time sits in both subtrees."""

    episodic = Indicator.parse("t:a s:b p:cd o:e t:f | abc def")


class ConT(TensorModel):
    """θ = Σ_ijk a_s[i] a_p[j] a_o[k] G_t[i,j,k]: every time owns a core."""

    episodic = Indicator.parse("s:i p:j o:k t:ijk")
    counterpart = Rescal


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
    """The model of that name, in any case."""
    if name.lower() not in MODELS:
        raise UserError(f"unknown model {name!r}; choose one of {', '.join(MODELS)}")
    return MODELS[name.lower()]


def projectable() -> list[str]:
    """The models that are linear in one time."""
    return [name for name, model in MODELS.items() if model.episodic and len(model.episodic.occurrences("t")) == 1]


def xavier_(weight: Tensor, *, generator: torch.Generator | None = None) -> None:
    """Fill with U(−b, b), b = √(6 / (fan_in + fan_out)), in place; a tensor counts as (first axis) × (the others)."""
    matrix = weight.flatten(1) if weight.dim() > 1 else weight[None]
    nn.init.xavier_uniform_(matrix, generator=generator)


def _made(facts: Facts, slot: str, candidates: Tensor) -> Facts:
    """The facts that each fact's own candidates of a slot make: (B · K)."""
    return Facts(facts.ids.repeat_interleave(candidates.shape[1], dim=0)).with_slot(slot, candidates.reshape(-1))


def _facing(rows: Tensor) -> Tensor:
    """Candidates (N, w) as real rows whose products with the real rows of queries are scores.

    Re Σ q x = Σ Re q Re x − Im q Im x: the real rows of q against the real rows of conj(x).
    """
    return real_rows(rows.conj())


def real_rows(rows: Tensor) -> Tensor:
    """Complex rows (N, w) as real rows (N, 2w); real rows as they are."""
    return torch.view_as_real(rows.resolve_conj()).flatten(1) if rows.is_complex() else rows
