"""The modern recipe: every ingredient against its formula in plain autograd, and what comes of them together."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from conftest import generator, random_facts, random_model
from recollect import Facts, Memory, Recipe, UserError, load
from recollect.evaluation.baselines import Baseline
from recollect.graph.fact_index import FactIndex
from recollect.models.tensor_model import MODELS
from recollect.models.time_knots import TimeKnots, neighbours
from recollect.training import trainer as training_module
from recollect.training.losses import one_vs_all
from recollect.training.recipe import RECIPES, SUITED, check_predict, parse_recipe
from recollect.training.run import TrainingRun
from recollect.training.trainer import Epoch, Trainer

SIZES = {"entity": 9, "predicate": 3, "time": 20}
EPISODIC = [name for name, model in MODELS.items() if model.has_form("episodic")]
FORMS = pytest.mark.parametrize("form", ["episodic", "both"])
BARE = Recipe(
    loss="one-vs-all", reciprocal=True, optimizer="adagrad", learning_rate=0.1, l2=0, epochs=1, batch_size=1000
)


def first_step(model, facts: Facts, recipe: Recipe) -> dict[str, torch.Tensor]:
    """The gradients of one step of all facts, read off Adagrad's sums of squares, with the sign of the move."""
    before = {name: value.clone() for name, value in model.state_dict().items()}
    training = Trainer(model, facts, recipe, generator=generator(3))
    next(iter(training))
    state = training.optimizer.state()
    moved = {name: before[name] - value for name, value in model.state_dict().items()}
    return {name: state[f"sum.{name}"].sqrt() * moved[name].sign() for name in before}


def weights(model, facts: Facts) -> torch.Tensor:
    """What the penalty counts of each fact: Σ|·|³ of what a sum over one axis multiplies, else ‖·‖²."""
    rows = {slot: model.rows(slot) for slot in "so"}
    if not model.cubed:
        factors = [rows["s"][facts.s], model.query(model.works(facts), "o"), rows["o"][facts.o]]
        return sum(factor.square().sum(dim=1) for factor in factors)
    times = model.time if model.levels is None else model.levels.rows(model.time, torch.arange(SIZES["time"]))
    between = {"": model.lift("p", model.predicate)[facts.p] * model.lift("t", times)[facts.t]}
    if model.form == "both":
        between["static_"] = model.lift("p", model.static_predicate)[facts.p]
    products = [made * getattr(model, f"{prefix}core0", 1) for prefix, made in between.items()]  # DistMult's λ
    entity = model.lift("s", model.entity)
    return sum(factor.abs().pow(3).sum(dim=1) for factor in (entity[facts.s], *products, entity[facts.o]))


def plain_loss(model, facts: Facts, recipe: Recipe) -> torch.Tensor:
    """The objective in plain autograd: every fact asked both ways, one at a time."""
    total = torch.zeros((), dtype=torch.float64)
    inverse = Facts.from_columns(facts.o, facts.p + SIZES["predicate"], facts.s, facts.t)
    for asked in (facts, inverse):
        scores = torch.stack(
            [model.score(asked.with_slot("o", entity)) for entity in range(SIZES["entity"])], dim=1
        )  # by the equation, candidate by candidate
        total = total + functional.cross_entropy(
            scores, asked.o, reduction="sum", label_smoothing=recipe.label_smoothing
        )
        total = total + recipe.penalty * weights(model, asked).sum()
    before, _ = neighbours(SIZES["time"], model.spacings)
    have = before >= 0
    apart = model.time[have] - model.time[before[have]]
    return (total + recipe.smoothness * apart.square().sum()) / len(facts)


@pytest.mark.parametrize("name", EPISODIC)
@FORMS
@pytest.mark.parametrize("levels", [(1,), (0, 1, 3)])
def test_the_first_step_is_down_the_whole_objective(name, form, levels):
    model = random_model(name, form, 3, sizes=SIZES, reciprocal=True, levels=levels)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.3)
    facts = random_facts(400, SIZES)  # every time has facts, so a batch of all of them is a whole gradient
    assert len(facts.t.unique()) == SIZES["time"]
    recipe = replace(BARE, levels=levels, penalty=0.02, smoothness=0.7, label_smoothing=0.15)
    plain_loss(model, facts, recipe).backward()
    wanted = {key: value.grad.clone() for key, value in model.named_parameters()}
    for key, found in first_step(model, facts, recipe).items():
        torch.testing.assert_close(found, wanted[key], rtol=1e-6, atol=1e-9, msg=lambda m, key=key: f"{key}: {m}")


@pytest.mark.parametrize("long", [1, 2**12])
def test_smoothness_is_whole_after_an_epoch_of_rows_touched_one_by_one(long, monkeypatch):
    monkeypatch.setattr("recollect.training.LONG", long)
    sizes = {"entity": 9, "predicate": 3, "time": 200}
    facts = random_facts(900, sizes, seed=5)
    facts = facts.with_slot(
        "t", torch.cat([torch.arange(200), facts.t[200:]])
    )  # a time without facts has no part in it
    recipe = replace(BARE, smoothness=0.5, batch_size=8, order="random", levels=(1, 7))
    model = random_model("cont", "episodic", 2, sizes=sizes, reciprocal=True, levels=(1, 7))
    training = Trainer(model, facts, recipe, generator=generator(3))
    assert "time" in training.lazy
    total = torch.zeros_like(model.time)
    for piece in training._order().split(8):
        batch = facts[piece]
        rows = training._touched("time", batch, {})
        grad = torch.zeros_like(model.time[rows])
        training._add_roughness(grad, batch, rows)
        total[rows] += grad * len(batch)  # a step's loss is a mean, the objective a sum
    before, _ = neighbours(sizes["time"], (1, 7))
    have, table = before >= 0, model.time.detach().clone().requires_grad_()
    (0.5 * (table[have] - table[before[have]]).square().sum()).backward()
    torch.testing.assert_close(total.detach(), table.grad)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("budget", [1, 2**20])
def test_label_smoothing_is_pytorchs(smoothing, budget):
    g = generator(1)
    query = torch.randn(5, 4, dtype=torch.float64, generator=g, requires_grad=True)
    table = torch.randn(7, 4, dtype=torch.float64, generator=g, requires_grad=True)
    which, answer = torch.tensor([0, 0, 3, 4, 4, 4]), torch.tensor([1, 2, 6, 0, 0, 5])
    weight = torch.tensor([1.0, 2, 0.5, 1, 3, 1], dtype=torch.float64)
    ours = one_vs_all(query, table, which, answer, weight, smoothing=smoothing, budget=budget)
    logits = (query @ table.T)[which]
    each = functional.cross_entropy(logits, answer, reduction="none", label_smoothing=smoothing)
    theirs = (each * weight).sum()
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(
        torch.autograd.grad(ours, (query, table)), torch.autograd.grad(theirs, (query, table)), strict=True
    ):
        torch.testing.assert_close(a, b)


def test_dropout_leaves_the_expected_query_and_is_drawn_from_the_generator():
    model = random_model("complex", "episodic", 3, sizes=SIZES, reciprocal=True)
    recipe = replace(BARE, dropout=0.25)
    training = Trainer(model, random_facts(20, SIZES), recipe, generator=generator(3))
    query = torch.ones(4000, 10, dtype=torch.float64)
    dropped = training._dropped(query)
    assert set(dropped.unique().tolist()) == {0.0, 1 / 0.75}
    assert dropped.mean().item() == pytest.approx(1, abs=0.02)
    training.generator.manual_seed(3)
    assert torch.equal(training._dropped(query), dropped)


def test_levels_of_one_day_are_the_plain_model():
    plain = random_model("cont", "both", 3, sizes=SIZES)
    levelled = random_model("cont", "both", 3, sizes=SIZES, levels=(0, 1))
    weights = plain.state_dict()
    shift = torch.randn(1, 3, 3, 3, dtype=torch.float64, generator=generator(4))
    levelled.load_state_dict(weights | {"time": torch.cat([shift, weights["time"] - shift])})
    facts = random_facts(50, SIZES)
    for slot in "spot":
        torch.testing.assert_close(levelled.score_against(facts, slot), plain.score_against(facts, slot))
    torch.testing.assert_close(levelled.plain().time, plain.time)


@pytest.mark.parametrize("name", EPISODIC)
@pytest.mark.parametrize("count", [2, 19])
def test_some_times_are_scored_as_among_all(name, count):
    """Of few times the rows are made of knots first; of many, the scores."""
    model = random_model(name, "both", 3, sizes=SIZES, levels=(1, 5))
    facts, times = random_facts(30, SIZES), torch.randperm(20, generator=generator(2))[:count]
    torch.testing.assert_close(model.score_against(facts, "t", times), model.score_against(facts, "t")[:, times])


def test_only_cores_of_times_learn_at_a_rate_of_their_own(small_world):
    def rates(name):
        return TrainingRun(small_world, model=name, dim=3, recipe=RECIPES["modern"]).training.optimizer.rates

    assert rates("cont") == {"time": RECIPES["modern"].time_rate}
    assert rates("complex") == rates("tree") == {}


@pytest.mark.parametrize("spacings", [(1,), (0,), (3,), (0, 1, 4, 7), (50,)])
def test_knots_interpolate(spacings):
    levels = TimeKnots.of(20, spacings)
    weights = levels.mixing(torch.arange(20), torch.zeros(1, dtype=torch.float64))
    assert weights.shape == (20, levels.count)
    torch.testing.assert_close(weights.sum(dim=1), torch.full((20,), float(len(spacings)), dtype=torch.float64))
    assert bool((weights.sum(dim=0) > 0).all()) or 50 in spacings  # no knot but the last of a long level is idle
    knots = torch.randn(levels.count, 2, dtype=torch.float64, generator=generator(2))
    times = torch.tensor([3, 3, 0, 19])
    torch.testing.assert_close(levels.rows(knots, times), weights[times] @ knots)
    used = levels.touched(times)
    assert torch.equal(used, weights[times].sum(dim=0).nonzero()[:, 0])
    part = levels.part(times, used)
    torch.testing.assert_close(part.rows(knots[used], torch.arange(4)), weights[times] @ knots)


@pytest.mark.parametrize("name", EPISODIC)
def test_every_model_learns_the_world_with_it(small_world, name):
    recipe = replace(RECIPES["modern"], epochs=20, validate_every=10, batch_size=256)
    memory = Memory.learn(small_world, model=name, dim=8, form="both", recipe=recipe)
    assert memory.evaluate("test", "so").filtered["entity"]["mrr"] > 0.8


def test_a_run_resumes_bit_for_bit_with_every_ingredient(small_world, tmp_path):
    predict = {"s": 1.0, "o": 1.0, "p": 0.3, "t": 0.2}
    recipe = replace(RECIPES["modern"], epochs=2, validate_every=1, predict=predict, batch_size=200)

    def fresh() -> TrainingRun:
        return TrainingRun(small_world, model="cont", dim=3, recipe=recipe, form="both")

    whole = fresh()
    list(whole)
    cut = fresh()
    for record in cut:
        if cut.training.epoch == 1 and not isinstance(record, Epoch):  # in the midst of the second epoch
            cut.keep(tmp_path / "run")
            break
    assert cut.training.mean
    again = fresh()
    again.resume_(tmp_path / "run")
    list(again)
    for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_memory_of_it_is_saved_and_read(small_world, tmp_path):
    recipe = replace(RECIPES["modern"], epochs=2, validate_every=1, batch_size=256)
    memory = Memory.learn(small_world, model="tucker", dim=4, form="both", recipe=recipe)
    memory.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.model.spec() == memory.model.spec()
    assert (again.model.reciprocal, again.model.spacings) == (True, (1, 5, 25))
    facts = small_world.split("test")
    for slot in "spot":
        assert torch.equal(memory.model.score_against(facts, slot), again.model.score_against(facts, slot))
    told = memory.know(predicate=small_world.predicates.labels[0], top=3)
    assert told.equals(again.know(predicate=small_world.predicates.labels[0], top=3))


def test_recipes_come_from_files(tmp_path):
    file = tmp_path / "found.json"
    wanted = replace(RECIPES["modern"], penalty=0.123, levels=(2, 9))
    file.write_text(json.dumps({"recipe": wanted.told(), "best": 1}))
    assert parse_recipe(str(file)) == wanted
    file.write_text(json.dumps(wanted.told()))
    assert parse_recipe(str(file)) == wanted
    file.write_text('{"speed": 3}')
    with pytest.raises(UserError, match="not the settings of a recipe"):
        parse_recipe(str(file))


def test_a_named_recipe_suits_the_model(small_world):
    assert parse_recipe("modern", "cont") == parse_recipe("modern") == RECIPES["modern"]
    assert parse_recipe("paper", "complex") == RECIPES["paper"]
    wanted = parse_recipe("modern", "complex")
    assert (wanted.penalty, wanted.dropout, wanted.loss) == (0.01, 0.0, "one-vs-all")
    for name in ("complex", "ComplEx"):
        assert TrainingRun(small_world, model=name, dim=3, recipe="modern").recipe == wanted
    assert all(set(models) <= set(MODELS) for models in SUITED.values())


def test_predict_is_read_in_every_way():
    assert check_predict("object,subject") == {"s": 1.0, "o": 1.0}
    assert check_predict({"time": 0.5, "s": 0}) == {"t": 0.5}
    for wrong in ({"s": -1}, {"s": float("nan")}):
        with pytest.raises(UserError, match="weighs its slots by numbers from 0"):
            check_predict(wrong)


def test_a_slot_weighs_as_told():
    facts = random_facts(60, SIZES)

    def grads(predict: dict[str, float]) -> torch.Tensor:
        model = random_model("distmult", "episodic", 3, sizes=SIZES)
        recipe = replace(BARE, reciprocal=False, predict=predict)
        return first_step(model, facts, recipe)["time"]

    together = grads({"o": 1.0, "t": 0.25})
    torch.testing.assert_close(together, grads({"o": 1.0}) + 0.25 * grads({"t": 1.0}))


def loop_baseline(learned: list, sizes: dict, fact: tuple, slot: int, decay: float) -> list[float]:
    kinds, n = ("entity", "predicate", "entity", "time"), len(learned)
    scores = []
    for candidate in range(sizes[kinds[slot]]):
        total = second = third = 0.0
        for known in learned:
            same = all(known[i] == fact[i] for i in range(3) if i != slot)
            at = candidate if slot == 3 else fact[3]
            if same and (slot == 3 or known[slot] == candidate):
                total += (1 + abs(at - known[3])) ** -decay
            if known[slot] == candidate:
                third += 1 / (n + 1)
                second += (known[1] == fact[1]) / (n + 1) if slot != 1 else 0
        scores.append(total + 1e-5 * second + 1e-10 * third)
    return scores


@pytest.mark.parametrize("decay", [0.0, 1.0])
@pytest.mark.parametrize("slot", "spot")
def test_baselines_count_as_a_loop_does(slot, decay):
    facts = random_facts(300, {"entity": 4, "predicate": 2, "time": 6})
    sizes = {"entity": 4, "predicate": 2, "time": 6}
    asked = random_facts(10, sizes, seed=9)
    found = Baseline(facts, sizes, decay=decay).score_against(asked, slot)
    wanted = [
        loop_baseline(facts.ids.tolist(), sizes, tuple(fact), "spot".index(slot), decay) for fact in asked.ids.tolist()
    ]
    torch.testing.assert_close(found, torch.tensor(wanted, dtype=torch.float64))
    some = torch.tensor([1, 0])
    scorer = Baseline(facts, sizes, decay=decay)
    torch.testing.assert_close(scorer.score_against(asked, slot, some), found[:, some])
    assert len(FactIndex(facts, sizes).facts) == 300


def test_an_epoch_counts_as_its_number_in_the_mean_of_weights(small_world):
    recipe = replace(RECIPES["modern"], epochs=5, validate_every=9, batch_size=512)
    learning = TrainingRun(small_world, model="complex", dim=3, recipe=recipe)
    kept = [learning.model.entity.detach().double().clone() for record in learning if isinstance(record, Epoch)]
    mean = sum(number * weights for number, weights in enumerate(kept, 1)) / 15
    torch.testing.assert_close(learning.training.mean["entity"].double(), mean, rtol=1e-5, atol=1e-6)
    assert torch.equal(learning.training.best["entity"], learning.training.mean["entity"])  # what was validated
    assert torch.equal(learning.model.entity.double(), kept[-1])
    learning.training.finish_()
    assert torch.equal(learning.model.entity, learning.training.mean["entity"])


def test_few_knots_and_rows_touched_one_by_one():
    """Fewer knots than times, a table updated row by row, and only some parameters learned."""
    sizes = {"entity": 40, "predicate": 3, "time": 400}
    facts = random_facts(300, sizes)
    model = random_model("cont", "both", 2, sizes=sizes, reciprocal=True, levels=(4,))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    recipe = replace(BARE, levels=(4,), batch_size=6, smoothness=0.1, order="random")
    training = Trainer(model, facts, recipe, generator=generator(1), learn={"time"})
    assert "time" in training.lazy
    list(training)
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"time"}


def test_times_without_facts_lie_between_their_neighbours():
    model = random_model("cont", "both", 3, sizes=SIZES, levels=(1, 4), reciprocal=True)
    facts = random_facts(60, SIZES)
    facts = facts[(facts.t < 8) | ((facts.t > 11) & (facts.t < 15))]
    recipe = replace(BARE, smoothness=2.0, levels=(1, 4), batch_size=16)
    for _ in Trainer(model, facts, recipe, generator=generator(3)):
        pass
    rows = model.time.detach()
    torch.testing.assert_close(rows[9], torch.lerp(rows[7], rows[12], 2 / 5))
    torch.testing.assert_close(rows[15:20], rows[14].expand(5, 3, 3, 3))
    fine, coarse = rows[:20], rows[20:]
    assert len(coarse) == 6
    torch.testing.assert_close(coarse[5], coarse[4])  # of times 16 to 19, which have no facts
    assert not torch.equal(fine[7], fine[8])


def test_corrupted_times_are_made_of_their_own_knots(monkeypatch):
    sizes, levels = SIZES | {"time": 400}, (1, 5)
    recipe = Recipe(negatives={"s": 1, "o": 1, "t": 2}, levels=levels, optimizer="adagrad", l2=0, batch_size=16)
    after = []
    for lazy in (training_module.LAZY, 10**9):  # rows one by one, and whole tables
        monkeypatch.setattr(training_module, "LAZY", lazy)
        model = random_model("distmult", "episodic", 3, sizes=sizes, levels=levels)
        training = Trainer(model, random_facts(32, sizes), recipe, generator=generator(3))
        assert ("time" in training.lazy) == (lazy < 10**9)
        for _, _ in zip(range(2), training, strict=False):
            pass
        after.append(model.state_dict())
    for name, value in after[0].items():
        torch.testing.assert_close(value, after[1][name])


@pytest.mark.parametrize("name", ["complex", "tree"])
def test_all_entities_and_predicates_are_candidates_however_many(monkeypatch, name):
    monkeypatch.setattr(training_module, "HUGE", 1)
    sizes = {"entity": 900, "predicate": 300, "time": 400}
    model = random_model(name, "episodic", 2, sizes=sizes, reciprocal=True)
    recipe = replace(BARE, predict={"s": 1, "p": 1, "o": 1, "t": 1}, batch_size=8)
    training = Trainer(model, random_facts(40, sizes), recipe, generator=generator(3))
    assert training.lazy == {"time"}


@pytest.mark.parametrize("rank", [6, 7])
@pytest.mark.parametrize("slot", "so")
def test_spectra_are_as_long_as_rows(rank, slot):
    model = random_model("hole", "episodic", rank, sizes=SIZES)
    torch.testing.assert_close(model.rows(slot).square().sum(dim=1), model.entity.square().sum(dim=1))
    query = model.query(model.works(random_facts(10, SIZES)), slot)
    # the query that real rows would meet: θ of every entity as a linear map of its row
    real = torch.linalg.lstsq(model.entity, (query @ model.rows(slot).T).T).solution.T
    torch.testing.assert_close(real.square().sum(dim=1), query.square().sum(dim=1))


@pytest.mark.parametrize("name", EPISODIC)
@FORMS
def test_every_ingredient_at_once_is_the_plain_objective(name, form):
    """Facts that weigh, all four slots, label smoothing, the penalty, and drawn entities that stand for many."""
    sizes = SIZES | {"entity": 40}
    model = random_model(name, form, 3, sizes=sizes, reciprocal=True)
    facts = random_facts(12, sizes)
    facts = replace(facts, weight=torch.linspace(0.5, 2, 12, dtype=torch.float64))
    recipe = replace(
        BARE, predict={"s": 1.0, "p": 0.5, "o": 1.0, "t": 0.3}, penalty=0.1, label_smoothing=0.2, candidates=5
    )
    training = Trainer(model, facts, recipe, generator=generator(3))
    both = training._both_ways(facts)
    rows, copies = training._joined_by_others(training._touched("entity", both, {}))
    assert copies.max() > 1
    value, grads = training._gradients({"entity": rows}, both, {}, copies)

    def entropy(asked: Facts, slot: str, ids: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        scores = torch.stack([model.score(asked.with_slot(slot, int(one))) for one in ids], dim=1)
        logs = scores - (scores.exp() * counts).sum(dim=1, keepdim=True).log()
        right = logs.gather(1, torch.searchsorted(ids, asked.column(slot).contiguous())[:, None])[:, 0]
        return -(0.8 * right + 0.2 * (logs @ counts) / counts.sum())

    total = torch.zeros((), dtype=torch.float64)
    inverse = Facts.from_columns(facts.o, facts.p + sizes["predicate"], facts.s, facts.t)
    for asked in (facts, inverse):
        each = entropy(asked, "o", rows, copies.double()) + 0.1 * weights(model, asked)
        total = total + (each * facts.weight).sum()
    for slot, weight, count in (("p", 0.5, sizes["predicate"]), ("t", 0.3, sizes["time"])):
        each = entropy(facts, slot, torch.arange(count), torch.ones(count, dtype=torch.float64))
        total = total + weight * (each * facts.weight).sum()
    (total / 12).backward()
    assert value == pytest.approx(total.item() / 12)
    for key, parameter in model.named_parameters():
        wanted = parameter.grad[rows] if key == "entity" else parameter.grad
        torch.testing.assert_close(grads[key], wanted, msg=lambda m, key=key: f"{key}: {m}")


def test_what_is_left_of_a_query_is_what_meets_the_candidates(monkeypatch):
    model = random_model("complex", "episodic", 3, sizes=SIZES, reciprocal=True)
    training = Trainer(model, random_facts(20, SIZES), replace(BARE, dropout=0.25), generator=generator(3))
    monkeypatch.setattr(training, "_dropped", lambda query: query * 0)
    assert next(iter(training)).loss == pytest.approx(2 * math.log(SIZES["entity"]))


def test_a_reciprocal_model_predicts_both_ways_alike():
    model = random_model("complex", "episodic", 3, sizes=SIZES, reciprocal=True)
    with pytest.raises(UserError, match="a reciprocal model predicts s and o alike; got"):
        Trainer(model, random_facts(20, SIZES), Recipe(loss="one-vs-all", predict="s"), generator=generator(3))


def test_a_state_may_be_continued_twice():
    recipe = replace(BARE, epochs=3, batch_size=7, average=True)
    facts, runs = random_facts(20, SIZES), []
    training = Trainer(random_model("complex", "both", 3, sizes=SIZES), facts, recipe, generator=generator(3))
    while next(iter(training)).epoch < 1:
        pass
    tensors, plain = training.state()
    kept = {name: value.clone() for name, value in tensors.items()}
    for _ in range(2):
        model = random_model("complex", "both", 3, sizes=SIZES)
        again = Trainer(model, facts, recipe, generator=generator(9))
        again.restore_(kept, plain)
        list(again)
        runs.append(again.state()[0])
    for name, value in runs[0].items():
        assert torch.equal(value, runs[1][name]), name
