"""The seven models: each is its equation and, where needed, a lift; scoring of every slot is derived.

A fact's factors are rows of three tables (entity, predicate, time); subject and object share one.
`score` contracts all factors. `score_against` contracts all but the open slot's into a query and takes
one real matrix product with the candidates, so both come from the same equation and cannot disagree.

In the form `both` θ is a sum of the episodic equation and the semantic one, which has a core of its own or, where an
equation has none or a diagonal one, predicates of its own (ComplEx is then TNTComplEx). A reciprocal model has every
predicate twice, p and p⁻¹, and answers who by asking whom: (?, p, o, t) is (o, p⁻¹, ?, t).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from recollect.engine.contraction import Between, Contraction, distinct_counts, most_counts, without, work_numbers
from recollect.engine.grouped import matrix_scores
from recollect.engine.ops import gather_dot, is_compiled, pair_scores, take
from recollect.engine.parallel import one_thread, parallel_for
from recollect.errors import UserError
from recollect.graph.facts import KINDS, SLOT_NAMES, Facts, check_ids
from recollect.graph.seeds import seeded
from recollect.models.equation import Equation
from recollect.models.time_knots import TimeKnots, check_levels

FORMS = ("episodic", "semantic", "both")
STATIC = "static_"  # begins the names of what the semantic equation has of its own in the form `both`
Works = dict[str, Contraction]  # by equation
QUERIES = 2**15  # facts whose queries are made at a time
WIDE = 2**22  # numbers of candidates whose rows are matrices or more, at a time: fewer make too little of a row
ROUND = 2**17  # facts that threads share at a time: how long one that is done, or interrupted, waits for the others
WORK_BYTES = 64 * 2**20  # of a thread: without gradients, facts are scored in pieces whose factors fit in this


@dataclass(frozen=True, kw_only=True)
class Dims:
    """The length of the latent vectors of entities, predicates and times.

    >>> Dims.of(40, time=10)
    Dims(entity=40, predicate=40, time=10)
    """

    entity: int
    predicate: int
    time: int

    @classmethod
    def of(cls, entity: int, *, predicate: int | None = None, time: int | None = None) -> Dims:
        """Predicates and times take the entities' dim unless told."""
        return cls(
            entity=entity,
            predicate=entity if predicate is None else predicate,
            time=entity if time is None else time,
        )

    def __post_init__(self) -> None:
        if min(self.entity, self.predicate, self.time) < 1:
            raise UserError(f"a dim is a whole number from 1; got {self}")


@dataclass(frozen=True)
class Wide:
    """Candidates whose rows are matrices or more; θ is linear in a row, so those of times may be knots to mix."""

    rows: Tensor
    mixing: Tensor | None = None  # (candidates, rows)


class TensorModel(nn.Module):
    """θ from an equation over the rows of three tables and shared cores."""

    episodic: ClassVar[Equation | None] = None
    semantic: ClassVar[Equation | None] = None
    parts: ClassVar[int] = 1  # 2: a table holds real and imaginary parts
    cubed: ClassVar[bool] = False  # what is large is told by |·|³: of a sum over one axis of rows as they are
    counterpart: ClassVar[type[TensorModel] | None] = None  # the semantic model that a time makes of it, if not itself

    entity: nn.Parameter
    predicate: nn.Parameter
    time: nn.Parameter
    core0: nn.Parameter

    def __init__(
        self,
        sizes: Mapping[str, int],
        dims: Dims | int,
        *,
        form: str = "episodic",
        reciprocal: bool = False,
        levels: Sequence[int] = (1,),
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        """`levels` are the spacings of the knots that times are made of (`TimeKnots`); with (1,) each is its own."""
        super().__init__()
        self.sizes = dict(sizes)
        self.dims = dims if isinstance(dims, Dims) else Dims.of(dims)
        self.form, self.reciprocal, self.spacings = form, reciprocal, check_levels(levels)
        self.equations = self.forms(form)
        self.indicator = self.equations[""]
        self.levels = TimeKnots.of(sizes["time"], self.spacings) if self.spacings != (1,) else None
        for name, shape in self.shapes(self.sizes, self.dims, form, reciprocal, self.spacings).items():
            weight = torch.empty(shape, dtype=dtype)
            xavier_(weight, generator=generator)
            self.register_parameter(name, nn.Parameter(weight.to(device)))

    @classmethod
    def forms(cls, form: str) -> dict[str, Equation]:
        """The equations whose sum is θ, by the beginning of the names of what only they have."""
        if form not in FORMS:
            raise UserError(f"unknown form {form!r}; choose one of {', '.join(FORMS)}")
        wanted = {"": "episodic", STATIC: "semantic"} if form == "both" else {"": form}
        found = {prefix: getattr(cls, name) for prefix, name in wanted.items()}
        if None in found.values():
            have = ", ".join(name for name, model in MODELS.items() if model.has_form(form))
            raise UserError(f"{cls.__name__} has no {form} form; models that have one: {have}")
        return found

    @classmethod
    def has_form(cls, form: str) -> bool:
        return all(getattr(cls, name) for name in (("episodic", "semantic") if form == "both" else (form,)))

    @classmethod
    def equation(cls, form: str) -> Equation:
        """The model's equation in the episodic (s p o t) or semantic (s p o) form; the episodic one of `both`."""
        return cls.forms(form)[""]

    @classmethod
    def shapes(
        cls,
        sizes: Mapping[str, int],
        dims: Dims,
        form: str = "episodic",
        reciprocal: bool = False,
        levels: Sequence[int] = (1,),
    ) -> dict[str, tuple[int, ...]]:
        """The shape of every parameter, by name, before any memory is taken."""
        rows = dict(sizes) | {"predicate": sizes["predicate"] * (2 if reciprocal else 1)}
        if tuple(levels) != (1,):
            rows["time"] = TimeKnots.of(sizes["time"], levels).count
        shapes: dict[str, tuple[int, ...]] = {}
        for prefix, indicator in cls.forms(form).items():
            own = cls._shapes(rows, replace(dims, time=dims.entity) if prefix else dims, indicator, form)
            tables = {KINDS[slot]: cls._table_name(prefix, slot) for slot in indicator.slots}
            shapes |= {tables.get(name, prefix + name): shape for name, shape in own.items()}
        return shapes

    @classmethod
    def _table_name(cls, prefix: str, slot: str) -> str:
        """Equations have all tables in common; predicates are the semantic one's own where its core is no more."""
        own = prefix and slot == "p" and cls.equation("semantic").is_diagonal
        return prefix + KINDS[slot] if own else KINDS[slot]

    @classmethod
    def _shapes(cls, rows: Mapping[str, int], dims: Dims, indicator: Equation, form: str) -> dict[str, tuple[int, ...]]:
        owners = {axis: cls._owners(axis, indicator) for _, axes in indicator.factors for axis in axes}
        length = {axis: cls._length(kinds, dims) for axis, kinds in owners.items()}
        for kind in vars(dims).keys() - set().union(*owners.values()):
            if getattr(dims, kind) != dims.entity:
                raise UserError(f"the {form} {cls.__name__} has no {kind} dim of its own; got {dims}")
        shapes: dict[str, tuple[int, ...]] = {}
        for slot, axes in indicator.factors:
            parts = (cls.parts,) if cls.parts > 1 else ()
            shapes[KINDS[slot]] = (rows[KINDS[slot]], *(length[axis] for axis in axes), *parts)
        for number, axes in enumerate(indicator.cores):
            shapes[f"core{number}"] = tuple(length[axis] for axis in axes)
        return shapes

    @classmethod
    def _owners(cls, axis: str, indicator: Equation) -> set[str]:
        """The kinds whose dim an axis has: those whose smallest factors carry it."""
        carriers = [(len(axes), KINDS[slot]) for slot, axes in indicator.factors if axis in axes]
        return {kind for size, kind in carriers if size == min(carriers)[0]}

    @classmethod
    def _length(cls, kinds: set[str], dims: Dims) -> int:
        lengths: set[int] = {getattr(dims, kind) for kind in kinds}
        if len(lengths) > 1:
            raise UserError(f"{cls.__name__} needs one dim for {' and '.join(sorted(kinds))}; got {dims}")
        return lengths.pop()

    @classmethod
    def batch_numbers(cls, sizes: Mapping[str, int], dims: Dims, facts: int, slots: str, form: str = "episodic") -> int:
        """About how many numbers the work on a batch makes until the queries of these slots are there."""
        shapes, made = cls.shapes(sizes, dims, form), 0
        for prefix, indicator in cls.forms(form).items():
            weights = [shapes[cls._table_name(prefix, slot)][1:] for slot, _ in indicator.factors]
            weights += [shapes[f"{prefix}core{number}"] for number in range(len(indicator.cores))]
            axes = {
                axis: n
                for (_, names), shape in zip(indicator.terms, weights, strict=True)
                for axis, n in zip(names, shape, strict=False)
            }
            counts = most_counts(indicator, sizes, facts)
            for slot in slots:
                made += work_numbers(indicator.terms, axes, counts, without(indicator.terms, slot))
        return cls.parts * made

    @classmethod
    def parameter_count(
        cls,
        sizes: Mapping[str, int],
        dims: Dims | int,
        form: str = "episodic",
        reciprocal: bool = False,
        levels: Sequence[int] = (1,),
    ) -> int:
        """How many numbers the model learns.

        >>> ConT.parameter_count({"entity": 258, "predicate": 20, "time": 72}, 40) == (258 + 20) * 40 + 72 * 40**3
        True
        """
        dims = dims if isinstance(dims, Dims) else Dims.of(dims)
        return sum(math.prod(shape) for shape in cls.shapes(sizes, dims, form, reciprocal, levels).values())

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

    def plain(self) -> TensorModel:
        """The model that has no inverse predicates, no knots and one equation, the episodic one of `both`."""
        if len(self.equations) == 1 and not self.reciprocal and self.levels is None:
            return self
        form = "episodic" if self.form == "both" else self.form
        weights = {name: value.detach() for name, value in self.named_parameters() if not name.startswith(STATIC)}
        weights |= {KINDS[slot]: self._taken(slot, "", None).detach() for slot in self.indicator.slots}
        model = type(self)(self.sizes, self.dims, form=form, dtype=self.dtype, device=self.device, generator=seeded(0))
        model.load_state_dict(weights)
        return model

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
                weights["core0"] = torch.einsum(f"{axes},{ours.cores[0]}->{left}", time, self.core0)
            else:
                left = "".join(name[axis] for axis in theirs.axes("p"))
                lifted = torch.einsum(f"{axes},N{ours.axes('p')}->N{left}", time, self.lift("p", self.predicate))
                weights["predicate"] = self.lower("p", lifted)
        dims = Dims.of(self.dims.entity) if self.counterpart else replace(self.dims, time=self.dims.entity)
        model = kind(self.sizes, dims, form="semantic", dtype=self.dtype, device=self.device, generator=seeded(0))
        model.load_state_dict({key: value.detach().contiguous() for key, value in weights.items()})
        return model

    def score(self, facts: Facts) -> Tensor:
        """θ[s,p,o,t] of each fact: (B,)."""
        return self._in_pieces(facts, 1, None, lambda works, _: self._thetas(works)[:, None])[:, 0]

    def asked(self, facts: Facts, slot: str) -> tuple[Facts, str]:
        """The question that answers which id of `slot` completes each fact: a reciprocal model asks whom for who."""
        return (self.inverse(facts), "o") if self.reciprocal and slot == "s" else (facts, slot)

    def inverse(self, facts: Facts) -> Facts:
        """(o, p⁻¹, s, t) of each fact (s, p, o, t) of a reciprocal model."""
        ids = Facts.from_columns(facts.o, facts.p + self.sizes["predicate"], facts.s, facts.t).ids
        return replace(facts, ids=ids)

    def score_against(self, facts: Facts, slot: str, candidates: Tensor | None = None) -> Tensor:
        """Entry (b, n) is θ of fact b with `slot` replaced by candidate n.

        Candidates: None for all ids (B, N); (N,) ids shared by all facts (B, N); (B, K) ids of each fact (B, K).
        """
        if slot not in self.indicator.slots:
            raise UserError(f"the {self.form} {type(self).__name__} has no {SLOT_NAMES.get(slot, slot)} slot")
        facts, slot = self.asked(facts, slot)
        if candidates is not None and candidates.dim() == 2:
            columns, own = candidates.shape[1], candidates.to(self.device)
            if self.is_wide(slot):  # a query would be as large as a core: score the facts that the candidates make
                return self.score(_made(facts, slot, candidates)).view(candidates.shape)
            return self._in_pieces(
                facts, columns, slot, lambda works, piece: self._against_own(works, slot, own[piece])
            )
        if self.is_wide(slot):
            wide = self._wide(slot, candidates)
            return _sum([self._against_wide(facts, prefix, slot, wide.get(prefix)) for prefix in self.equations])
        shared = self.rows(slot, candidates)
        return self._in_pieces(facts, len(shared), slot, lambda works, _: self.query(works, slot) @ shared.T)

    def visit_queries(self, facts: Facts, slot: str, visit: Callable[[Tensor, int], None]) -> None:
        """The queries of a slot, many facts at a time: (n, width) and the place of their first fact are visited.

        A query times a row of `rows(slot)` is a score. Several threads may visit, each its own facts. No gradient.
        """
        each = self.sizes[KINDS[slot]] * self.row_numbers(slot)
        with torch.no_grad(), one_thread():
            for start in range(0, len(facts), ROUND):
                some = facts[start : start + ROUND]
                parallel_for(partial(self._visit_some, some, slot, start, visit), len(some), len(some) * each)

    def _visit_some(
        self, facts: Facts, slot: str, place: int, visit: Callable[[Tensor, int], None], first: int, last: int
    ) -> None:
        """The same of the facts from first to last, fact 0 at `place`, in pieces whose work fits in WORK_BYTES."""
        for start in range(first, last, QUERIES):  # queries are small beside scores: many share more of their work
            stretch = facts[start : min(start + QUERIES, last)]
            works = self.works(stretch, open=slot)
            size = -(-len(stretch) // self._pieces(works, slot, len(stretch)))
            for at in range(0, len(stretch), size):
                if size < len(stretch):
                    works = self.works(stretch[at : at + size], open=slot)
                visit(self.query(works, slot), place + start + at)

    def score_with_negatives(
        self, facts: Facts, corrupted: Mapping[str, Tensor], counts: Mapping[str, int] | None = None
    ) -> tuple[Tensor, Tensor]:
        """θ of each fact (B,) and of its corruptions, the ids of each slot in turn (B, ΣK); common work done once."""
        works, true, false = self.works(facts, counts), None, []
        if corrupted.keys() <= {"s", "o"} and is_compiled(self._table("s")) and len(works) == 1:
            if self.indicator.is_diagonal:
                return self._score_pairs(works[""], corrupted)
            # a query serves many corruptions, and the matrix has to be met by each of them
            one_each = [ids.shape[1] for ids in corrupted.values()] == [1, 1]
            if one_each and (between := works[""].between()) is not None:
                return self._score_by_matrix(works[""], between, corrupted)
        for slot, ids in corrupted.items():
            # the true id comes along as the first candidate: one query serves the fact and its corruptions
            own = torch.cat([facts.column(slot)[:, None], ids], dim=1) if true is None else ids
            if self.is_wide(slot):
                scores = self._thetas(self.works(_made(facts, slot, own))).view(own.shape)
            else:
                scores = self._against_own(works, slot, own.to(self.device))
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
        scores = pair_scores(*work.query_rows("so"), subjects, s, objects, o, *others)
        return scores[:, 0], scores[:, 1:]

    def _score_by_matrix(
        self, work: Contraction, between: Between, corrupted: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The same where a matrix that facts share stands between subject and object."""
        given = {
            slot: work.ids[slot][:, None]
            for slot in sorted("so", key=lambda slot: between.axes.index(work.indicator.axes(slot)))
        }
        given |= {slot: torch.cat([given[slot], ids], dim=1) for slot, ids in corrupted.items()}
        rows, columns = (work.factor(slot, ids) for slot, ids in given.items())
        scores = matrix_scores(between.matrices, between.groups, *rows, *columns)
        others = dict(zip(given, scores[:, 1:].split([ids.shape[1] - 1 for ids in given.values()], dim=1), strict=True))
        return scores[:, 0], torch.cat([others[slot] for slot in corrupted], dim=1)

    def row_numbers(self, slot: str) -> int:
        """How many numbers a row of the slot's table has."""
        return self._table(slot)[:1].numel()

    def is_wide(self, slot: str) -> bool:
        """Whether a row of the slot is a matrix or more."""
        return len(self.indicator.axes(slot)) > 1

    def works(self, facts: Facts, counts: Mapping[str, int] | None = None, open: str = "") -> Works:
        """These facts, on their way to scores by each equation, or to queries of an `open` slot only.

        `counts` tells their distinct combinations; counted here if None.
        """
        there = facts.to(self.device)
        return {
            prefix: self._contraction(prefix, there, counts or distinct_counts(indicator, there, open))
            for prefix, indicator in self.equations.items()
        }

    def _contraction(self, prefix: str, facts: Facts, counts: Mapping[str, int]) -> Contraction:
        indicator = self.equations[prefix]

        def lifted(slot: str, ids: Tensor) -> tuple[Tensor, Tensor]:
            """Rows of a slot's factor and where the rows of `ids` are among them."""
            table = self._table(slot, prefix)
            check_ids(slot, ids, self.count(slot))
            if slot == "t" and self.levels is not None:
                found, index = ids.unique(return_inverse=True)
                return self.lift(slot, self.levels.rows(table, found)).resolve_conj(), index
            if not ids.numel() or 4 * ids.numel() >= len(table) or type(self).lift is TensorModel.lift:
                if slot not in tables:
                    tables[slot] = self.lift(slot, table).resolve_conj()
                return tables[slot], ids
            each = torch.arange(ids.numel(), device=self.device).view(ids.shape)
            return self.lift(slot, take(table, ids.reshape(-1))).resolve_conj(), each

        tables: dict[str, Tensor] = {}
        cores = [getattr(self, f"{prefix}core{number}") for number in range(len(indicator.cores))]
        return Contraction(indicator, facts, lifted, cores, counts)

    def _thetas(self, works: Works) -> Tensor:
        """θ of each fact: (B,)."""
        return _sum([_real(work.score()) for work in works.values()])

    def query(self, works: Works, slot: str) -> Tensor:
        """Real rows whose products with the real rows of a slot's candidates are scores: (B, width).

        Equations that read the slot from the same table have their queries added up, others side by side; one that
        has no such slot says the same of every candidate, which stands for 1.
        """
        waiting: dict[str, list[Tensor]] = {}
        for prefix, work in works.items():
            if slot in work.indicator.slots:
                made = real_rows(work.query(slot).flatten(1))
                waiting.setdefault(self._table_name(prefix, slot), []).append(made)
            else:
                waiting.setdefault("", []).append(_real(work.score())[:, None])
        return _beside([_sum(queries) for queries in waiting.values()])

    def weighed(self, works: Works, slot: str, query: Tensor, answers: Tensor) -> tuple[Tensor, Tensor]:
        """How large what a question is made of is (B,), and what the answers to a slot, s or o, are (N,).

        Σ|·|³ of the entity, of all that stands between it and the answer, by each equation, and of the answer, where a
        model is `cubed`: by less the terms of a sum would thin out. Else ‖·‖² of the entity, query and answer, which
        is the same in any basis.
        """
        size = _cubes if self.cubed else _squares
        between = [work.query("so") for work in works.values()] if self.cubed else [query]
        given, at = works[""].factor(other := "so".replace(slot, ""), works[""].ids[other])
        answer, to = works[""].factor(slot, answers)
        return _sum([take(size(given), at), *(size(made) for made in between)]), take(size(answer), to)

    def rows(self, slot: str, ids: Tensor | None = None) -> Tensor:
        """Candidates of a slot that is not wide, by default all, as real rows that face queries: (N, width)."""
        names = {self._table_name(prefix, slot): prefix for prefix, x in self.equations.items() if slot in x.slots}
        faces = [_facing(self.lift(slot, self._taken(slot, prefix, ids))) for prefix in names.values()]
        if any(slot not in indicator.slots for indicator in self.equations.values()):
            faces.append(faces[0].new_ones(len(faces[0]), 1))
        return _beside(faces)

    def _taken(self, slot: str, prefix: str, ids: Tensor | None) -> Tensor:
        """Rows of the ids of a slot, by default all that may be asked for."""
        table = self._table(slot, prefix)
        if slot == "t" and self.levels is not None:
            return self.levels.rows(table, torch.arange(self.count("t")) if ids is None else ids)
        if ids is not None:
            return take(table, ids.to(self.device))
        return table[: self.sizes["predicate"]] if slot == "p" and self.reciprocal else table

    def _against_own(self, works: Works, slot: str, own: Tensor) -> Tensor:
        """θ of each fact with its own candidates of a slot that is not wide: (B, K)."""
        if len(works) > 1:
            check_ids(slot, own, self.count(slot))
            return gather_dot(self.query(works, slot), self.rows(slot), own)
        rows, own = works[""].factor(slot, own)
        return gather_dot(self.query(works, slot), _facing(rows), own)

    def _wide(self, slot: str, ids: Tensor | None) -> dict[str, Wide]:
        """The candidates of a wide slot, for each equation that has it."""
        if slot == "t" and self.levels is not None and len(self.indicator.occurrences("t")) == 1:
            times = torch.arange(self.count("t")) if ids is None else ids.cpu()
            if 2 * len(times) > len(self.time):  # of fewer times, rows are made of their knots first
                return {"": Wide(self.lift("t", self.time), self.levels.mixing(times, self.time))}
        have = [prefix for prefix, indicator in self.equations.items() if slot in indicator.slots]
        return {prefix: Wide(self.lift(slot, self._taken(slot, prefix, ids))) for prefix in have}

    def _against_wide(self, facts: Facts, prefix: str, slot: str, wide: Wide | None) -> Tensor:
        """θ by one equation of each fact with each candidate of a wide slot; (B, 1) where it has no such slot."""
        if wide is None:
            return self._in_pieces(facts, 1, None, lambda works, _: _real(works[prefix].score())[:, None])
        rows = wide.rows
        if torch.is_grad_enabled():
            scores = self.works(facts)[prefix].against(slot, rows)
        else:  # some candidates at a time, which stay in a cache until all facts have met them
            some = max(1, WIDE // rows[0].numel())
            scores = torch.empty(len(facts), len(rows), dtype=self.dtype, device=self.device)
            for start in range(0, len(rows), some):
                block = rows[start : start + some]
                met = partial(_meet, prefix, slot, block)
                scores[:, start : start + some] = self._in_pieces(facts, len(block), slot, met, block)
        return scores if wide.mixing is None else scores @ wide.mixing.T

    def count(self, slot: str) -> int:
        """How many ids a slot's factors may have: inverse predicates are among them, knots of times are not."""
        if slot == "t" and self.levels is not None:
            return len(self.levels.knot)
        return len(self._table(slot))

    def part(self, tables: Mapping[str, Tensor], levels: TimeKnots | None = None) -> TensorModel:
        """The same equation with other rows in some tables; its parameters are fresh leaves."""
        part = copy.copy(self)
        values = {name: parameter.detach() for name, parameter in self.named_parameters()} | dict(tables)
        part._parameters = {name: nn.Parameter(value) for name, value in values.items()}
        part.sizes = self.sizes | {kind: len(table) for kind, table in tables.items() if kind in self.sizes}
        part.levels = levels or self.levels
        if levels is not None:
            part.sizes["time"] = len(levels.knot)
        return part

    def tables(self, kind: str) -> list[str]:
        """The names of the tables of a kind."""
        return [name for name in (kind, STATIC + kind) if name in self._parameters]

    def _in_pieces(
        self,
        facts: Facts,
        columns: int,
        slot: str | None,
        scores: Callable[[Works, slice], Tensor],
        wide: Tensor | None = None,
    ) -> Tensor:
        """The scores of facts, at once or, without gradients, in pieces whose work fits in WORK_BYTES."""
        works, n = self.works(facts), len(facts)
        pieces = 1 if torch.is_grad_enabled() else self._pieces(works, slot, n, wide)
        if pieces == 1:
            return scores(works, slice(None))
        # into one block: small results kept between large pieces of work would scatter the heap
        out = torch.empty(n, columns, dtype=self.dtype, device=self.device)
        rows = -(-n // pieces)
        for start in range(0, n, rows):
            piece = slice(start, start + rows)
            out[piece] = scores(self.works(facts[piece]), piece)
        return out

    def _pieces(self, works: Works, slot: str | None, facts: int, wide: Tensor | None = None) -> int:
        """In how many pieces the work on so many facts fits in WORK_BYTES."""
        numbers = sum(
            work.numbers(slot, wide if slot and slot in work.indicator.slots else None) for work in works.values()
        )
        return max(1, min(facts, -(-numbers * self.dtype.itemsize // WORK_BYTES)))

    def _table(self, slot: str, prefix: str = "") -> Tensor:
        table: Tensor = getattr(self, self._table_name(prefix, slot))
        return table

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
        told = {"model": name, "form": self.form, "ranks": vars(self.dims), "dtype": dtype}
        more = {"reciprocal": True} if self.reciprocal else {}
        return told | more | ({"levels": list(self.spacings)} if self.levels is not None else {})


class DistMult(TensorModel):
    """θ = Σ_r λ[r] a_s[r] a_p[r] a_o[r] a_t[r]."""

    episodic = Equation.parse("s:r p:r o:r t:r | r")
    semantic = Equation.parse("s:r p:r o:r | r")
    cubed = True


class ComplEx(TensorModel):
    """θ = Re Σ_r a_s[r] a_p[r] conj(a_o[r]) a_t[r], all complex."""

    episodic = Equation.parse("s:r p:r o:r t:r")
    semantic = Equation.parse("s:r p:r o:r")
    parts = 2
    cubed = True

    def lift(self, slot: str, rows: Tensor) -> Tensor:
        a = torch.view_as_complex(rows)
        return a.conj() if slot == "o" else a

    def lower(self, slot: str, factor: Tensor) -> Tensor:
        return torch.view_as_real((factor.conj() if slot == "o" else factor).resolve_conj())


class HolE(TensorModel):
    """θ = a_t · (a_p ⋆ (a_s ⋆ a_o)) = 1/d Σ_k T_k P_k S_k conj(O_k), ⋆ circular correlation, S = FFT(a_s) …"""

    episodic = Equation.parse("s:r p:r o:r t:r")
    semantic = Equation.parse("s:r p:r o:r")

    def lift(self, slot: str, rows: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(rows)
        if slot in "pt":
            return spectrum
        d = rows.shape[-1]
        # rfft leaves out the conjugate half: every bin counts twice but the first and, for even d, the last;
        # half of that and of 1/d goes to either entity, whose spectrum is then as long as its row
        weight = torch.full((spectrum.shape[-1],), (2 / d) ** 0.5, dtype=rows.dtype, device=rows.device)
        weight[0] = d**-0.5
        if d % 2 == 0:
            weight[-1] = d**-0.5
        return (spectrum if slot == "s" else spectrum.conj()) * weight

    def lower(self, slot: str, factor: Tensor) -> Tensor:
        assert slot in "pt", "an entity's spectrum is weighted"
        return torch.fft.irfft(factor, n=self.dims.entity)


class Rescal(TensorModel):
    """θ = Σ_ij a_s[i] G_p[i,j] a_o[j]: every predicate owns a matrix."""

    semantic = Equation.parse("s:i p:ij o:j")


class Tucker(TensorModel):
    """θ = Σ_lijk a_t[l] a_s[i] a_p[j] a_o[k] G[l,i,j,k]: one core for all."""

    episodic = Equation.parse("s:i p:j o:k t:l | lijk")
    semantic = Equation.parse("s:i p:j o:k | ijk")


class Tree(TensorModel):
    """θ = Σ a_t[a] a_s[b] G₁[a,b,c] G_p[c,d] G₂[d,e,f] a_o[e] a_t[f]: time sits in both subtrees."""

    episodic = Equation.parse("t:a s:b p:cd o:e t:f | abc def")
    semantic = Equation.parse("s:b p:cd o:e | bc de")


class ConT(TensorModel):
    """θ = Σ_ijk a_s[i] a_p[j] a_o[k] G_t[i,j,k]: every time owns a core."""

    episodic = Equation.parse("s:i p:j o:k t:ijk")
    semantic = Equation.parse("s:i p:j o:k | ijk")
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


def _sum(parts: list[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _squares(x: Tensor) -> Tensor:
    return real_rows(x).square().sum(dim=1)


def _cubes(x: Tensor) -> Tensor:
    return x.abs().pow(3).sum(dim=1)


def _beside(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _real(theta: Tensor) -> Tensor:
    return theta.real if theta.is_complex() else theta


def _meet(prefix: str, slot: str, candidates: Tensor, works: Works, _: slice) -> Tensor:
    return works[prefix].against(slot, candidates)


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
