"""The contract of every model × form × slot, against loops and against itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.autograd import gradcheck

from backends import BACKENDS, running
from conftest import FORMED, SIZES, UNEQUAL, generator, model_config, own_scores, random_facts, random_model
from oracles import ORACLES, from_equations
from recollect import Facts, Memory, Recipe, UserError, dataset, load
from recollect.graph.facts import KINDS
from recollect.models import scoring
from recollect.models.zoo import MODELS, build_model, parameter_count

EACH = pytest.mark.parametrize(("name", "form"), FORMED)
DIRECTED = pytest.mark.parametrize(
    ("name", "form", "slot"), [(n, f, s) for n, f in FORMED for s in ("spo" if f == "semantic" else "spot")]
)
PER_BACKEND = pytest.mark.usefixtures("backend")


@pytest.fixture(params=BACKENDS)
def backend(request):
    with running(request.param):
        yield request.param


def structure(form: str) -> dict:
    return {"static": True} if form == "both" else {"form": form}


def as_lists(model: torch.nn.Module) -> dict:
    return {name: value.tolist() for name, value in model.state_dict().items()}


def loop_times(knots: list, times: int, spacings: list[int]) -> list:
    """Every time from its knots, by the formula of `recollect.levels`, in loops."""
    rows, first = [torch.zeros(torch.tensor(knots[0]).shape, dtype=torch.float64) for _ in range(times)], 0
    for spacing in spacings:
        last = 0
        for t in range(times):
            below, over = (0, 0.0) if spacing == 0 else (t // spacing, t % spacing / spacing)
            for knot, weight in ((below, 1 - over), (below + 1, over)):
                if weight:
                    rows[t] = rows[t] + weight * torch.tensor(knots[first + knot], dtype=torch.float64)
                    last = max(last, knot)
        first += last + 1
    assert first == len(knots)
    return [row.tolist() for row in rows]


def oracle(name: str) -> Callable[..., float]:
    """Return the paper's equation in loops, or, for a model that the paper does not have, its own equation."""
    if name in ORACLES:
        return ORACLES[name]
    model = MODELS[name]
    return from_equations(*(each and (each.factors, each.cores) for each in (model.episodic, model.semantic)))


def loop_scores(name: str, form: str, model: torch.nn.Module, facts: Facts) -> torch.Tensor:
    weights = as_lists(model)
    if model.knots is not None:
        weights["time"] = loop_times(weights["time"], model.sizes["time"], model.config.time_levels)
    rows = facts.ids.tolist()
    scores = [0.0] * len(rows)
    if form != "semantic":
        scores = [oracle(name)(weights, *row) for row in rows]
    if form != "episodic":
        own = {key.removeprefix("static_"): value for key, value in weights.items() if key.startswith("static_")}
        scores = [x + oracle(name)(weights | own, s, p, o) for x, (s, p, o, _) in zip(scores, rows, strict=True)]
    return torch.tensor(scores, dtype=torch.float64)


@PER_BACKEND
@EACH
@pytest.mark.parametrize("dim", [1, 4, 5])
def test_score_is_the_papers_equation_in_loops(name, form, dim):
    model, facts = random_model(name, form, dim), random_facts(12)
    torch.testing.assert_close(model.score(facts), loop_scores(name, form, model, facts))


@PER_BACKEND
@pytest.mark.parametrize(("name", "form"), UNEQUAL)
def test_score_with_unequal_dims_is_the_equation_in_loops(name, form):
    model, facts = random_model(name, form, **UNEQUAL[name, form]), random_facts(12)
    torch.testing.assert_close(model.score(facts), loop_scores(name, form, model, facts))
    for slot in model.slots:
        torch.testing.assert_close(own_scores(model, facts, slot), model.score(facts))


@PER_BACKEND
@DIRECTED
def test_every_candidate_scores_as_if_substituted(name, form, slot):
    model, facts = random_model(name, form), random_facts(9)
    against = model.score_against(facts, slot)
    assert against.shape == (9, SIZES[KINDS[slot]])
    for candidate in range(against.shape[1]):
        substituted = facts.with_slot(slot, torch.full((9,), candidate))
        torch.testing.assert_close(against[:, candidate], loop_scores(name, form, model, substituted))


@PER_BACKEND
@DIRECTED
def test_a_fact_scores_the_same_in_every_direction(name, form, slot):
    model, facts = random_model(name, form), random_facts(9)
    torch.testing.assert_close(own_scores(model, facts, slot), model.score(facts))


@PER_BACKEND
@DIRECTED
def test_candidates_may_be_shared_or_per_fact(name, form, slot):
    model, facts = random_model(name, form), random_facts(9)
    everything = model.score_against(facts, slot)
    n = everything.shape[1]
    shared = torch.tensor([n - 1, 0, 0])
    torch.testing.assert_close(model.score_against(facts, slot, shared), everything[:, shared])
    each = torch.randint(n, (9, 4), generator=generator(3))
    torch.testing.assert_close(model.score_against(facts, slot, each), everything.gather(1, each))


@PER_BACKEND
@DIRECTED
def test_facts_scored_in_pieces_are_the_same(name, form, slot, monkeypatch):
    model, facts = random_model(name, form), random_facts(9)
    each = torch.randint(SIZES[KINDS[slot]], (9, 4), generator=generator(3))
    with torch.no_grad():
        whole, some = model.score_against(facts, slot), model.score_against(facts, slot, each)
        monkeypatch.setattr(scoring, "PIECE_BYTES", 1)
        torch.testing.assert_close(model.score_against(facts, slot), whole)
        torch.testing.assert_close(model.score_against(facts, slot, each), some)


@DIRECTED
def test_linear_in_every_slot_but_trees_time_which_is_quadratic(name, form, slot):
    # only rows 0, 1 and 2 of the slot's table matter: row 2 is made x·row 0 + y·row 1
    # a static part whose parameters are all shared does not depend on time: θ is affine then, and x + y = 1
    x, y = (2, -1) if form == "both" and slot == "t" else (2, -3)
    model = random_model(name, form)
    facts = random_facts(6).with_slot({"s": "o", "o": "s"}.get(slot, slot), torch.full((6,), 3 % SIZES[KINDS[slot]]))
    table = model.get_parameter(KINDS[slot])
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key.startswith("static_"):  # its own predicates do not follow, and times are not in it
                parameter.zero_()
        table[2] = x * table[0] + y * table[1]
        at = [model.score(facts.with_slot(slot, torch.full((6,), row))) for row in range(3)]
        if (name, slot) == ("tree", "t"):
            table[2] = 2 * table[0]
            torch.testing.assert_close(model.score(facts.with_slot("t", torch.full((6,), 2))), 4 * at[0])
            assert not torch.allclose(at[2], x * at[0] + y * at[1])
        else:
            torch.testing.assert_close(at[2], x * at[0] + y * at[1])


@pytest.mark.parametrize(("name", "form"), [(name, form) for name, form in FORMED if name in ORACLES])
def test_parameter_counts_are_the_papers(name, form):
    ne, np_, nt, r, rt = 11, 5, 7, 4, 3
    rt = r if form == "semantic" or name in ("distmult", "hole", "complex", "cont") else rt
    n_t = 0 if form == "semantic" else nt
    expected = {
        "distmult": (ne + np_ + n_t + 1) * r,
        "hole": (ne + np_ + n_t) * r,  # the paper's table leaves N_t out for the episodic form; a_t is learned
        "complex": 2 * (ne + np_ + n_t) * r,
        "rescal": ne * r + np_ * r**2,
        "tree": ne * r + np_ * r**2 + (2 * r**2 if form == "semantic" else (nt + 2 * r**2) * rt),
        "cont": (ne + np_) * r + max(n_t, 1) * r**3,
        "tucker": (ne + np_) * r + (r**3 if form == "semantic" else (nt + r**3) * rt),
    }[name]
    if form == "both":  # and the core of the semantic equation, or its predicates
        expected += {"distmult": np_ * r + r, "hole": np_ * r, "complex": 2 * np_ * r}.get(name, 0)
        expected += {"tree": 2 * r**2, "cont": r**3, "tucker": r**3}.get(name, 0)
    sizes = {"entity": ne, "predicate": np_, "time": nt}
    config = model_config(name, form, r, time_dim=rt)
    assert parameter_count(config, sizes) == expected
    assert sum(p.numel() for p in build_model(config, sizes).parameters()) == expected


@PER_BACKEND
@DIRECTED
def test_gradients_reach_every_parameter(name, form, slot):
    model = random_model(name, form)
    facts = random_facts(200)
    model.score_against(facts, slot).square().sum().backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert bool((parameter.grad.flatten(1) if parameter.dim() > 1 else parameter.grad[None]).ne(0).all())


@PER_BACKEND
@DIRECTED
def test_gradcheck_in_float64(name, form, slot):
    model, facts = random_model(name, form, 2), random_facts(2)
    names = [name for name, _ in model.named_parameters()]

    def scores(*weights: torch.Tensor) -> torch.Tensor:
        given = {f"model.{name}": weight for name, weight in zip(names, weights, strict=True)}
        return torch.func.functional_call(Both(model), given, (facts, slot))

    assert gradcheck(scores, tuple(p.detach().clone().requires_grad_() for p in model.parameters()), fast_mode=True)


class Both(torch.nn.Module):
    """Both ways of scoring, as one function of the weights."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, facts, slot):
        return torch.cat([self.model.score(facts), self.model.score_against(facts, slot).flatten()])


@PER_BACKEND
@EACH
def test_float32_agrees_with_float64(name, form):
    wide = random_model(name, form)
    narrow = build_model(model_config(name, form), SIZES)
    narrow.load_state_dict({key: value.float() for key, value in wide.state_dict().items()})
    facts = random_facts(12)
    scores = narrow.score(facts)
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores, wide.score(facts).float(), rtol=1e-4, atol=1e-4)


@EACH
def test_xavier_bounds_and_seed(name, form):
    first, second = (build_model(model_config(name, form, 8), SIZES, generator=generator(5)) for _ in range(2))
    for (_, a), (_, b) in zip(first.named_parameters(), second.named_parameters(), strict=True):
        assert torch.equal(a, b)
        rows, rest = (a.shape[0], a[0].numel()) if a.dim() > 1 else (1, a.numel())
        bound = (6 / (rows + rest)) ** 0.5
        assert 0.5 * bound < float(a.detach().abs().max()) <= bound


@EACH
def test_save_and_load_are_exact(name, form, tmp_path):
    graph = dataset("world", countries=4, years=1)
    memory = Memory.learn(graph, model=name, dim=3, **structure(form), recipe=Recipe(epochs=1))
    memory.save(tmp_path / "m")
    again = load(tmp_path / "m")
    for key, value in memory.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[key])
    assert again.graph.fingerprint == graph.fingerprint
    assert again.calibration == memory.calibration
    assert again.about == memory.about
    facts = graph.split("test")
    for slot in memory.model.slots:
        assert torch.equal(memory.model.score_against(facts, slot), again.model.score_against(facts, slot))


def test_the_expected_forms_exist():
    of_the_paper = [(name, form) for name, form in FORMED if name in ORACLES]
    episodic = [name for name, form in of_the_paper if form == "episodic"]
    semantic = [name for name, form in of_the_paper if form == "semantic"]
    assert sorted(episodic) == ["complex", "cont", "distmult", "hole", "tree", "tucker"]
    assert sorted(semantic) == ["complex", "cont", "distmult", "hole", "rescal", "tree", "tucker"]
    assert sorted(name for name, form in of_the_paper if form == "both") == sorted(episodic)


@pytest.mark.parametrize(("name", "form"), [("rescal", "episodic"), ("rescal", "both")])
def test_a_missing_form_is_refused(name, form):
    with pytest.raises(UserError, match="Rescal has no episodic form; it has semantic"):
        build_model(model_config(name, form), SIZES)


@pytest.mark.parametrize("name", ["distmult", "hole", "complex"])
def test_one_dim_where_the_equation_joins_all_axes(name):
    with pytest.raises(UserError, match="needs one dim for entity and predicate and time"):
        build_model(model_config(name, "episodic", time_dim=2), SIZES)


@pytest.mark.parametrize(
    ("name", "form", "dims"),
    [("cont", "episodic", {"time_dim": 2}), ("rescal", "semantic", {"predicate_dim": 2})],
)
def test_a_dim_that_the_equation_cannot_use_is_refused(name, form, dims):
    with pytest.raises(UserError, match="dim of its own"):
        build_model(model_config(name, form, **dims), SIZES)


def test_a_semantic_model_has_no_time_slot():
    model = random_model("rescal", "semantic")
    with pytest.raises(UserError, match="the semantic Rescal has no time slot"):
        model.score_against(random_facts(2), "t")


BUILT = pytest.mark.parametrize(
    "built", [{"reciprocal": True}, {"time_levels": (0, 1, 3)}, {"reciprocal": True, "time_levels": (2,)}]
)
EPISODIC = pytest.mark.parametrize(("name", "form"), [(n, f) for n, f in FORMED if f != "semantic"])


@PER_BACKEND
@EPISODIC
@BUILT
def test_times_of_knots_and_inverse_predicates_are_the_equation_in_loops(name, form, built):
    sizes = {"entity": 5, "predicate": 3, "time": 8}
    model, facts = random_model(name, form, sizes=sizes, **built), random_facts(40, sizes)
    torch.testing.assert_close(model.score(facts), loop_scores(name, form, model, facts))
    for slot in "spot":
        asked = facts
        if built.get("reciprocal") and slot == "s":
            asked = Facts.from_columns(facts.o, facts.p + sizes["predicate"], facts.s, facts.t)
        torch.testing.assert_close(own_scores(model, facts, slot), loop_scores(name, form, model, asked))
        against = model.score_against(facts, slot)
        assert against.shape == (40, sizes[KINDS[slot]])
        some = torch.tensor([1, 0])
        torch.testing.assert_close(model.score_against(facts, slot, some), against[:, some])
        each = torch.randint(sizes[KINDS[slot]], (40, 3), generator=generator(7))
        torch.testing.assert_close(model.score_against(facts, slot, each), against.gather(1, each))
        candidates = model.candidates(slot)
        if candidates is not None:
            torch.testing.assert_close(model.queries(facts, slot) @ candidates.T, against)
