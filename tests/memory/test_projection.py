"""Projection to semantic memory: time rows in closed form, and what holds as of any time."""

from __future__ import annotations

from itertools import combinations, product

import pytest
import torch

from conftest import SIZES, generator, random_facts, random_model
from oracles import ORACLES
from recollect import EpisodicGraph, Facts, ModelConfig, UserError, Vocabulary
from recollect.engine import parallel
from recollect.graph.episodes import ends, starts
from recollect.graph.fact_index import FactIndex
from recollect.graph.times import TimeAxis
from recollect.memory.answering import answers, projection
from recollect.memory.answering.answers import best_triples
from recollect.memory.answering.held_out import HeldOut
from recollect.memory.answering.projection import Projection, project, sample_state, scores_over_time, solve_times
from recollect.models.semantic import semantic_model
from recollect.models.tensor_model import TensorModel
from recollect.models.zoo import MODELS, Rescal, build_model

SMALL = [
    ("distmult", {"dim": 4}),
    ("complex", {"dim": 3}),
    ("hole", {"dim": 4}),
    ("tucker", {"dim": 3}),
    ("cont", {"dim": 3, "predicate_dim": 2}),
]
MORE = [
    ("distmult", {"dim": 1}),
    ("hole", {"dim": 1}),
    ("hole", {"dim": 5}),
    ("tucker", {"dim": 3, "predicate_dim": 2, "time_dim": 4}),
    ("cont", {"dim": 4}),
]


def case(value: object) -> str:
    """Return the id of a test's parameter: a name, or dims like 3-2."""
    return "-".join(map(str, value.values())) if isinstance(value, dict) else str(value)


CELLS = list(product(range(SIZES["entity"]), range(SIZES["predicate"]), range(SIZES["entity"])))
PROJECTABLE = "models that have one: distmult, hole, complex, tucker, cont"


def all_cells() -> Facts:
    return Facts.of([(*cell, 0) for cell in CELLS])


def exactly(facts: Facts, times: int = SIZES["time"]) -> torch.Tensor:
    """Return the tensor with a 1 for each fact, the time rows of a ConT with one-hot embeddings: (t, s, p, o)."""
    tensor = torch.zeros(times, SIZES["entity"], SIZES["predicate"], SIZES["entity"], dtype=torch.float64)
    for s, p, o, t in facts.ids.tolist():
        tensor[t, s, p, o] = 1
    return tensor


def one_hot(sizes: dict[str, int] = SIZES) -> TensorModel:
    """Return the ConT that has a parameter of its own for every cell."""
    n, m = sizes["entity"], sizes["predicate"]
    config = ModelConfig(model="cont", dim=n, predicate_dim=m, dtype="float64")
    model = build_model(config, sizes, generator=generator())
    return model.with_rows({"entity": torch.eye(n).double(), "predicate": torch.eye(m).double()})


def graph_of(facts: Facts, times: int = SIZES["time"]) -> EpisodicGraph:
    entities, predicates = (
        Vocabulary.of(kind, (f"{kind}{i}" for i in range(SIZES[kind]))) for kind in ("entity", "predicate")
    )
    return EpisodicGraph(entities, predicates, TimeAxis("ordinal", 0, times), {"train": facts})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "dims"), SMALL + MORE, ids=case)
def test_at_a_sum_of_times_the_semantic_scores_are_sums_of_episodic_ones(name, dims, dtype):
    model = random_model(name, "episodic", dtype=dtype, **dims)
    semantic = semantic_model(model, model.time.detach()[1:].sum(0))
    assert type(semantic) is (Rescal if name == "cont" else MODELS[name])
    assert (semantic.config.form, semantic.config.dtype) == ("semantic", dtype)
    facts = random_facts(12)
    near = {"rtol": 1e-9, "atol": 1e-9} if dtype == "float64" else {"rtol": 1e-3, "atol": 1e-3}
    with torch.no_grad():
        wanted = sum(model.score(facts.with_slot("t", t)) for t in range(1, SIZES["time"]))
        torch.testing.assert_close(semantic.score(facts), wanted, **near)
        for slot in "spo":
            wanted = sum(model.score_against(facts.with_slot("t", t), slot) for t in range(1, SIZES["time"]))
            torch.testing.assert_close(semantic.score_against(facts, slot), wanted, **near)


def test_what_is_not_linear_in_one_time_has_no_projection():
    for name, form in (("tree", "episodic"), ("rescal", "semantic"), ("complex", "semantic")):
        model = random_model(name, form)
        sentence = f"^the {form} {type(model).__name__} is not linear in one time, .*{PROJECTABLE}$"
        with pytest.raises(UserError, match=sentence):
            semantic_model(model, torch.zeros(4))
        with pytest.raises(UserError, match=sentence):
            project(model, random_facts(3), random_facts(3))


def features(name: str, model) -> torch.Tensor:
    """φ of every cell from the plain equations, one unit vector of the time's numbers after the other: (cells, d)."""
    width = model.time[0].numel()
    weights = {key: value.tolist() for key, value in model.state_dict().items()}
    weights["time"] = torch.eye(width).view(width, *model.time.shape[1:]).tolist()
    rows = [[ORACLES[name](weights, s, p, o, t) for t in range(width)] for s, p, o in CELLS]
    return torch.tensor(rows, dtype=torch.float64)


def normal_equations(name, model, facts, triples, ridge, unseen) -> torch.Tensor:
    """The rows of all times, by a dense solve with every cell in turn."""
    phi = features(name, model)
    occurring = {tuple(row[:3]) for row in Facts.concat([facts, triples]).ids.tolist()}
    true = {tuple(row) for row in facts.ids.tolist()}
    chosen = Facts.of([(*cell, 0) for cell in sorted(occurring)])
    left = ridge * projection._mean_square(model, chosen) * torch.eye(phi.shape[1], dtype=torch.float64)
    right = torch.zeros(SIZES["time"], phi.shape[1], dtype=torch.float64)
    for cell, row in zip(CELLS, phi, strict=True):
        left += (unseen + (cell in occurring)) * torch.outer(row, row)
        for t in range(SIZES["time"]):
            if (*cell, t) in true:
                right[t] += row
    return torch.linalg.solve(left, right.T).T.reshape(SIZES["time"], *model.time.shape[1:])


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize(("name", "dims"), SMALL, ids=case)
def test_time_rows_are_the_ridge_regressions_over_all_cells(monkeypatch, name, dims, direct, chunked):
    model = random_model(name, "episodic", **dims)
    facts = random_facts(25)
    facts = facts[facts.t != 2]
    triples = random_facts(30, seed=3)
    if not direct:
        monkeypatch.setattr(projection, "DIRECT", 0)
        monkeypatch.setattr(projection, "RESIDUAL", 1e-12)
    if chunked:
        monkeypatch.setattr(projection, "BYTES", 1)
    options = [(1e-2, 1e-2)] if chunked else [(1e-2, 1e-2), (0.3, 0), (1e-2, 2.0)]
    for ridge, unseen in options:
        wanted = normal_equations(name, model, facts, triples, ridge, unseen)
        solved = solve_times(model, facts, triples, ridge=ridge, unseen=unseen)
        torch.testing.assert_close(solved, wanted, rtol=1e-6, atol=1e-8)
        assert not solved[2].any()
        assert solved[[0, 1, 3]].flatten(1).any(1).all()
    twice = solve_times(model, Facts.concat([facts, facts]), Facts.concat([triples, facts, triples]))
    torch.testing.assert_close(twice, solve_times(model, facts, triples), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("name", "dims"), SMALL, ids=case)
def test_several_threads_solve_for_the_same_rows(monkeypatch, name, dims):
    model, facts, triples = random_model(name, "episodic", **dims), random_facts(25), random_facts(30, seed=3)
    alone = solve_times(model, facts, triples)
    monkeypatch.setattr(parallel, "MIN_WORK", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        together = [solve_times(model, facts, triples) for _ in range(2)]
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(together[0], alone, rtol=1e-9, atol=1e-11)
    assert torch.equal(*together)


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize(("name", "dims"), SMALL, ids=case)
def test_the_defaults_come_near_in_single_precision_whatever_the_scale(monkeypatch, name, dims, direct):
    if not direct:
        monkeypatch.setattr(projection, "DIRECT", 0)
    model = random_model(name, "episodic", dtype="float32", **dims)
    facts, triples = random_facts(25), random_facts(30, seed=3)
    exact = normal_equations(name, model, facts, triples, projection.RIDGE, projection.UNSEEN).float()
    solved = solve_times(model, facts, triples)
    assert solved.dtype == torch.float32
    wanted, shown = (scores_over_time(model, rows, all_cells()) for rows in (exact, solved))
    # conjugate gradients stop early
    torch.testing.assert_close(shown, wanted, rtol=0, atol=1e-5 if direct else 0.1)
    scaled = model.with_rows({"entity": model.entity.detach() / 256})
    again = scores_over_time(scaled, solve_times(scaled, facts, triples), all_cells())
    torch.testing.assert_close(again, shown, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("name", "dims"), SMALL, ids=case)
def test_the_mean_square_is_about_that_of_the_features(name, dims):
    model = random_model(name, "episodic", **dims)
    exact = features(name, model).square().sum(1).mean().item()
    assert projection._mean_square(model, all_cells()) == pytest.approx(exact, rel=0.35)


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize(("name", "dims"), SMALL, ids=case)
def test_no_facts_leave_rows_of_zeros(monkeypatch, name, dims, direct):
    if not direct:
        monkeypatch.setattr(projection, "DIRECT", 0)
    model, shares = random_model(name, "episodic", **dims), []
    for triples in (random_facts(5), Facts.of([])):
        solved = solve_times(model, Facts.of([]), triples, progress=shares.append)
        assert solved.shape == model.time.shape
        assert not solved.any()
        assert shares[-1] == 1


@pytest.mark.parametrize("seed", range(3))
def test_exact_rows_score_exactly_what_holds_at_every_time(seed):
    times = 9
    sizes = SIZES | {"time": times}
    facts = random_facts(320, sizes, seed)  # of 675 cells: runs of many lengths, and some up to either edge
    graph = graph_of(facts, times)
    model, state = one_hot(sizes), exactly(facts, times).flatten(1)
    assert ends(graph).t.max() < times - 1
    both = Projection(model, exactly(starts(graph), times), exactly(ends(graph), times))
    start_only = Projection(model, exactly(starts(graph), times), None)
    for time in range(times):
        shown = both.at(time).score(all_cells())
        assert torch.equal(shown, state[time])
        never_less = start_only.at(time).score(all_cells())
        assert torch.equal(never_less > 0, state[: time + 1].any(0))
    assert torch.equal(both.row(), both.row(times - 1))
    assert torch.equal(both.at().score(all_cells()), state[-1])
    assert torch.equal(both.scores(all_cells()), state.T)


def test_solved_rows_come_as_near_as_their_ridge_allows():
    facts = random_facts(60)
    graph = graph_of(facts)
    shares: list[float] = []
    found = project(one_hot(), starts(graph), ends(graph), ridge=1e-9, unseen=0.25, progress=shares.append)
    # every cell has a number a of its own, which is to be 1: (a − 1)² + a²/4 is least at 4/5
    torch.testing.assert_close(found.scores(all_cells()).T, 0.8 * exactly(facts).flatten(1), rtol=0, atol=1e-6)
    assert shares == sorted(shares)
    assert shares[-1] == 1


GIVEN = [{slot: {"s": 3, "p": 1, "o": 2}[slot] for slot in slots} for n in range(4) for slots in combinations("spo", n)]


@pytest.mark.parametrize("given_ids", GIVEN, ids=lambda ids: "".join(ids) or "none")
@pytest.mark.parametrize("name", ["rescal", "complex"])
def test_the_best_triples_are_those_of_all_cells(monkeypatch, name, given_ids):
    model = random_model(name, "semantic")
    cells = [cell for cell in CELLS if all(cell["spo".index(slot)] == i for slot, i in given_ids.items())]
    with torch.no_grad():
        scores = model.score(Facts.of([(*cell, 0) for cell in cells]))
    order = scores.argsort(descending=True)
    for block_bytes in (answers.BLOCK_BYTES, 400, 1):
        monkeypatch.setattr(answers, "BLOCK_BYTES", block_bytes)
        for top in (0, 1, 7, 1000):
            found, their_scores = best_triples(model, given_ids, top)
            assert [tuple(row[:3]) for row in found.ids.tolist()] == [cells[i] for i in order[:top]]
            torch.testing.assert_close(their_scores, scores[order[:top]])


def test_of_equal_scores_the_lower_ids_come_first_whatever_the_blocks(monkeypatch):
    model = random_model("rescal", "semantic")
    with torch.no_grad():
        model.entity.fill_(0.5)
        model.predicate[:, :, :] = torch.tensor([0.0, 1.0, 0.0])[:, None, None]
    for slot, given_ids in {"s": {"p": 0, "o": 2}, "o": {"s": 4, "p": 2}}.items():
        assert best_triples(model, given_ids, 4)[0].column(slot).tolist() == [0, 1, 2, 3]
    assert best_triples(model, {"s": 4, "o": 2}, 3)[0].p.tolist() == [1, 0, 2]
    whole = best_triples(model, {}, 75)[0].ids.tolist()
    assert sorted(row[1] for row in whole[25:]) == [0] * 25 + [2] * 25
    monkeypatch.setattr(answers, "BLOCK_BYTES", 1)
    for n in (1, 30, 75):
        assert best_triples(model, {}, n)[0].ids.tolist() == whole[:n]


def test_the_best_triples_of_scores_that_are_nan_are_an_error():
    model = random_model("complex", "semantic")
    with torch.no_grad():
        model.entity.fill_(1e200)  # finite, but the products of two overflow to ∞ − ∞
    with pytest.raises(UserError, match="scores some answers as NaN"):
        best_triples(model, {"p": 1}, 3)


@pytest.mark.parametrize("count", [50, 1000])
def test_a_sample_of_a_state_represents_all_cells_that_are_not_stored(count):
    facts, model = random_facts(60), random_model("rescal", "semantic")
    stored, answers = FactIndex(facts[:30], SIZES), FactIndex(facts[30:], SIZES)
    held_out = HeldOut(facts[30:], answers, stored, FactIndex(facts, SIZES), unseen=2.0)
    sample = sample_state(model, facts, 2, held_out, generator=generator(), count=count)
    holds, withheld = ({(s, p, o) for s, p, o, t in part.ids.tolist() if t == 2} for part in (facts[:30], facts[30:]))
    triples = sorted({tuple(row[:3]) for row in facts.ids.tolist()} - holds)
    assert (len(sample.score) == len(CELLS) - len(holds)) is (count >= len(CELLS))
    assert sample.truth[: len(triples)].tolist() == [cell in withheld for cell in triples]
    assert holds
    assert withheld - holds
    assert not sample.truth[len(triples) :].any()
    assert sample.weight[: len(triples)].tolist() == [1] * len(triples)
    assert sample.weight.sum().item() == pytest.approx(len(CELLS) - len(holds))
    assert set(sample.count.tolist()) == {3.0}
    with torch.no_grad():
        scores = dict(zip(CELLS, model.score(all_cells()).tolist(), strict=True))
    assert sample.score[: len(triples)].tolist() == pytest.approx([scores[cell] for cell in triples])
    others = [scores[cell] for cell in CELLS if cell not in triples]
    assert all(min(abs(x - other) for other in others) < 1e-12 for x in sample.score[len(triples) :].tolist())
