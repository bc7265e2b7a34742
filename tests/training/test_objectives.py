"""Objectives: the gradient of a training step against the whole objective in plain autograd."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from conftest import FORMED, generator, model_config, random_facts, random_model
from recollect import Facts, Recipe, UserError
from recollect.graph.fact_index import FactIndex
from recollect.models.tensor_model import TensorModel
from recollect.models.time_knots import neighbours
from recollect.models.zoo import MODELS, build_model
from recollect.training.losses import logistic
from recollect.training.objectives import OBJECTIVES, OneVsAll, sample_entities, sample_negatives
from recollect.training.recipe import LOSSES
from recollect.training.trainer import Epoch, Trainer

SIZES = {"entity": 9, "predicate": 3, "time": 20}
SMALL = {"entity": 7, "predicate": 3, "time": 4}
MANY = {"entity": 60, "predicate": 3, "time": 4}
EPISODIC = [name for name, model in MODELS.items() if model.has_form("episodic")]
ONE_VS_ALL = Recipe(loss="one-vs-all", optimizer="adagrad", learning_rate=0.1, l2=0, epochs=1, batch_size=1000)


def first_gradients(model: TensorModel, facts: Facts, recipe: Recipe) -> dict[str, Tensor]:
    """Return the gradients of one step of all facts, read off Adagrad's sums of squares and the sign of the move."""
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trainer = Trainer(model, facts, recipe, generator=generator(3))
    next(iter(trainer))
    state = trainer.optimizer.state()
    moved = {name: before[name] - value for name, value in model.state_dict().items()}
    return {name: state[f"sum.{name}"].sqrt() * moved[name].sign() for name in before}


def regularized_norms(model: TensorModel, facts: Facts) -> Tensor:
    """Return what the penalty counts of each fact: Σ|·|³ for sums over one axis, ‖·‖² for all others."""
    if model.norm != 3:
        rows = {slot: model.candidates(slot) for slot in "so"}
        query = model.batch(facts).query("o")[:, : rows["o"].shape[1]]
        entity = _real(model.lift("s", model.entity))[facts.s], _real(model.lift("o", model.entity))[facts.o]
        return sum(factor.square().sum(dim=1) for factor in (*entity, query))
    times = model.time if model.knots is None else model.knots.rows(model.time, torch.arange(SIZES["time"]))
    between = {"": model.lift("p", model.predicate)[facts.p] * model.lift("t", times)[facts.t]}
    if model.config.static:
        between["static_"] = model.lift("p", model.static_predicate)[facts.p]
    products = [product * getattr(model, f"{prefix}core0", 1) for prefix, product in between.items()]
    entity = model.lift("s", model.entity)
    return sum(factor.abs().pow(3).sum(dim=1) for factor in (entity[facts.s], *products, entity[facts.o]))


def _real(rows: Tensor) -> Tensor:
    return torch.view_as_real(rows.resolve_conj()).flatten(1) if rows.is_complex() else rows


def inverse_facts(facts: Facts, sizes: dict[str, int]) -> Facts:
    return replace(facts, ids=Facts.from_columns(facts.o, facts.p + sizes["predicate"], facts.s, facts.t).ids)


def plain_objective(model: TensorModel, facts: Facts, recipe: Recipe) -> Tensor:
    """Return the objective in plain autograd: every fact and its inverse, candidate by candidate."""
    total = torch.zeros((), dtype=torch.float64)
    for directed in (facts, inverse_facts(facts, SIZES)):
        columns = [model.score(directed.with_slot("o", entity)) for entity in range(SIZES["entity"])]
        scores = torch.stack(columns, dim=1)
        total = total + cross_entropy(scores, directed.o, reduction="sum", label_smoothing=recipe.label_smoothing)
        total = total + recipe.penalty * regularized_norms(model, directed).sum()
    before, _ = neighbours(SIZES["time"], model.config.time_levels)
    has_neighbour = before >= 0
    differences = model.time[has_neighbour] - model.time[before[has_neighbour]]
    return (total + recipe.smoothness * differences.square().sum()) / len(facts)


@pytest.mark.parametrize("name", EPISODIC)
@pytest.mark.parametrize(("form", "time_levels"), [("episodic", (0, 1, 3)), ("both", (1,)), ("both", (0, 1, 3))])
def test_the_first_step_follows_the_gradient_of_the_whole_objective(name, form, time_levels):
    model = random_model(name, form, 3, sizes=SIZES, reciprocal=True, time_levels=time_levels)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.3)
    facts = random_facts(250, SIZES)  # one batch of all facts; every time has some
    assert len(facts.t.unique()) == SIZES["time"]
    recipe = replace(ONE_VS_ALL, penalty=0.02, smoothness=0.7, label_smoothing=0.15)
    plain_objective(model, facts, recipe).backward()
    wanted = {key: value.grad.clone() for key, value in model.named_parameters()}
    for key, found in first_gradients(model, facts, recipe).items():
        torch.testing.assert_close(found, wanted[key], rtol=1e-6, atol=1e-9, msg=lambda m, key=key: f"{key}: {m}")


@pytest.mark.parametrize("name", EPISODIC)
@pytest.mark.parametrize("form", ["episodic", "both"])
def test_sampled_entities_weights_and_all_four_slots_give_the_plain_objective(name, form):
    sizes = SIZES | {"entity": 40}
    model = random_model(name, form, 3, sizes=sizes, reciprocal=True)
    facts = replace(random_facts(12, sizes), weight=torch.linspace(0.5, 2, 12, dtype=torch.float64))
    predict = {"s": 1.0, "p": 0.5, "o": 1.0, "t": 0.3}
    recipe = replace(ONE_VS_ALL, predict=predict, penalty=0.1, label_smoothing=0.2, candidates=5)
    trainer = Trainer(model, facts, recipe, generator=generator(3))
    batch = trainer.objective.sample(model, facts, trainer.known, trainer.generator)
    entities, counts = batch.entities, batch.entity_counts.double()
    assert counts.max() > 1
    value, grads = trainer.loss_and_gradients(batch, {"entity": entities})

    def smoothed_cross_entropy(directed: Facts, slot: str, ids: Tensor, counts: Tensor) -> Tensor:
        scores = torch.stack([model.score(directed.with_slot(slot, int(one))) for one in ids], dim=1)
        logs = scores - (scores.exp() * counts).sum(dim=1, keepdim=True).log()
        right = logs.gather(1, torch.searchsorted(ids, directed.column(slot).contiguous())[:, None])[:, 0]
        return -(0.8 * right + 0.2 * (logs @ counts) / counts.sum())

    total = torch.zeros((), dtype=torch.float64)
    for directed in (facts, inverse_facts(facts, sizes)):
        losses = smoothed_cross_entropy(directed, "o", entities, counts) + 0.1 * regularized_norms(model, directed)
        total = total + (losses * facts.weight).sum()
    for slot, weight, count in (("p", 0.5, sizes["predicate"]), ("t", 0.3, sizes["time"])):
        losses = smoothed_cross_entropy(facts, slot, torch.arange(count), torch.ones(count, dtype=torch.float64))
        total = total + weight * (losses * facts.weight).sum()
    (total / 12).backward()
    assert value == pytest.approx(total.item() / 12)
    for key, parameter in model.named_parameters():
        wanted = parameter.grad[entities] if key == "entity" else parameter.grad
        torch.testing.assert_close(grads[key], wanted, msg=lambda m, key=key: f"{key}: {m}")


@pytest.mark.parametrize(("name", "form"), FORMED)
@pytest.mark.parametrize("weighted", [False, True])
def test_every_model_and_form_follows_the_summed_cross_entropy_of_its_slots(name, form, weighted):
    model = random_model(name, form, 3, sizes=SMALL)
    facts = random_facts(60, SMALL)
    weights = torch.rand(60, generator=generator(6)) if weighted else torch.ones(60)
    facts = Facts(facts.ids, weight=weights if weighted else None)
    slots = "spo" if form == "semantic" else "spot"
    losses = []
    for slot in slots:
        cross_entropies = cross_entropy(model.score_against(facts, slot), facts.column(slot), reduction="none")
        losses.append((cross_entropies * weights).sum() / len(facts))
    expected = torch.stack(losses).sum()
    wanted = torch.autograd.grad(expected, list(model.parameters()))
    recipe = replace(ONE_VS_ALL, predict=slots, order="random")
    trainer = Trainer(model, facts, recipe, generator=generator())
    batch = trainer.objective.sample(model, model.normalize(facts), trainer.known, trainer.generator)
    value, gradients = trainer.loss_and_gradients(batch, {})
    assert value == pytest.approx(expected.item())
    for (key, _), gradient in zip(model.named_parameters(), wanted, strict=True):
        torch.testing.assert_close(gradients[key], gradient)
    assert next(iter(trainer)).loss == pytest.approx(expected.item())


def test_a_slot_counts_by_its_weight():
    facts = random_facts(60, SIZES)

    def time_gradient(predict: dict[str, float]) -> Tensor:
        model = random_model("distmult", "episodic", 3, sizes=SIZES)
        return first_gradients(model, facts, replace(ONE_VS_ALL, predict=predict))["time"]

    together = time_gradient({"o": 1.0, "t": 0.25})
    torch.testing.assert_close(together, time_gradient({"o": 1.0}) + 0.25 * time_gradient({"t": 1.0}))


def test_dropout_keeps_the_expected_query_and_is_drawn_from_the_generator():
    objective, sizes = OneVsAll({"o": 1.0}, dropout=0.25), {"entity": 90, "predicate": 9, "time": 20}
    model, facts = random_model("distmult", "episodic", 10, sizes=sizes), random_facts(4000, sizes)
    drawn = objective.sample(model, facts, FactIndex(facts, sizes), generator(3)).dropout["o"]
    again = objective.sample(model, facts, FactIndex(facts, sizes), generator(3)).dropout["o"]
    assert torch.equal(drawn.kept, again.kept)
    queries = torch.ones(drawn.kept.shape, dtype=torch.float64)
    example = torch.empty(len(queries), dtype=torch.int64)
    example[drawn.query] = torch.arange(len(facts))
    dropped = objective._drop(queries, drawn, example)
    assert set(dropped.unique().tolist()) == {0.0, 1 / 0.75}
    assert dropped.mean().item() == pytest.approx(1, abs=0.02)


def test_dropped_queries_are_what_is_scored(monkeypatch):
    model = random_model("complex", "episodic", 3, sizes=SIZES, reciprocal=True)
    trainer = Trainer(model, random_facts(20, SIZES), replace(ONE_VS_ALL, dropout=0.25), generator=generator(3))
    monkeypatch.setattr(trainer.objective, "_drop", lambda queries, dropout, example: queries * 0)
    assert next(iter(trainer)).loss == pytest.approx(2 * math.log(SIZES["entity"]))


def test_plain_one_vs_all_draws_nothing_but_the_order():
    g = generator(3)
    model = random_model("complex", "episodic", 3, sizes=SMALL)
    trainer = Trainer(model, random_facts(20, SMALL), ONE_VS_ALL, generator=g)
    assert (trainer.objective.slots, trainer.objective.negatives) == ("so", {})
    list(trainer)
    same = generator(3)
    torch.randperm(20, generator=same)  # the order of the one epoch
    assert torch.equal(g.get_state(), same.get_state())


@pytest.mark.parametrize(("name", "form"), FORMED)
def test_sampling_all_other_entities_is_the_full_softmax(name, form):
    facts = random_facts(60, MANY)
    others = MANY["entity"] - len(torch.cat([facts.s, facts.o]).unique())
    assert 0 < others <= 29
    losses, models = [], []
    for candidates in (0, 29):
        model = random_model(name, form, 3, sizes=MANY)
        recipe = replace(ONE_VS_ALL, label_smoothing=0.2, candidates=candidates, penalty=0.01)
        trainer = Trainer(model, facts, recipe, generator=generator(1))
        assert trainer.objective.samples_entities(model) == bool(candidates)
        losses.append(next(iter(trainer)).loss)
        models.append(model)
    assert losses[0] == pytest.approx(losses[1])
    for full, sampled in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(full, sampled)


def test_sampled_entities_count_for_all_that_are_not_in_the_batch():
    g, in_batch, total = generator(1), torch.tensor([3, 8, 59, 3]), torch.zeros(60)
    for _ in range(2000):
        ids, counts = sample_entities(60, in_batch, 5, g)
        assert len(ids) == 8
        assert bool((ids.diff() > 0).all())
        assert counts.sum().item() == pytest.approx(60)
        total[ids] += counts
    assert total[in_batch].tolist() == [2000] * 4
    torch.testing.assert_close(total / 2000, torch.ones(60), rtol=0, atol=0.4)  # more than four standard deviations


def test_one_step_is_adam_on_the_papers_objective():
    """Compare with torch.optim.Adam on (Σ loss + λ‖P‖²) / n written out."""
    sizes, facts, lam = SMALL, random_facts(20, SMALL), 0.7
    config = model_config("tucker", "episodic", 3, dtype="float64")
    ours, plain = (build_model(config, sizes, generator=generator()) for _ in range(2))
    recipe = Recipe(l2=lam, batch_size=20, epochs=3, negatives={"o": 2}, learning_rate=0.1)
    list(Trainer(ours, facts, recipe, generator=generator(7)))
    g, known = generator(7), FactIndex(facts, sizes)
    adam = torch.optim.Adam(plain.parameters(), lr=0.1)
    for _ in range(3):
        batch = facts[torch.randperm(20, generator=g)]
        false = sample_negatives(batch, "o", 2, known=known, generator=g)
        scores = [plain.score(batch.with_slot("o", column)) for column in false.T]
        loss = logistic(plain.score(batch), torch.stack(scores, dim=1)).sum()
        penalty = lam * sum(p.square().sum() for p in plain.parameters())
        adam.zero_grad()
        ((loss + penalty) / 20).backward()
        adam.step()
    for a, b in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(("name", "form"), [("tree", "episodic"), ("tucker", "episodic"), ("rescal", "semantic")])
def test_negatives_weights_and_values_follow_their_facts_when_a_batch_is_sorted(name, form):
    sizes = {"entity": 12, "predicate": 3, "time": 40}
    facts = random_facts(60, sizes)
    facts = replace(facts, weight=torch.rand(60, generator=generator(3)), value=torch.arange(60) % 3 > 0)
    model = random_model(name, form, 3, sizes=sizes)
    facts = model.normalize(facts)
    objective, known = Recipe().objective(), FactIndex(facts, sizes)
    batch = objective.sample(model, facts, known, generator(2))
    g = generator(2)
    negatives = {slot: sample_negatives(facts, slot, 1, known=known, generator=g) for slot in "so"}
    assert not torch.equal(batch.facts.ids, facts.ids)
    unsorted = replace(batch, facts=facts, negatives=negatives)
    losses = [objective.loss(model, each, None) for each in (batch, unsorted)]
    torch.testing.assert_close(losses[0], losses[1])


def test_false_facts_are_learned_as_false_by_the_logistic_loss_only():
    facts = random_facts(60, SMALL)
    marked = Facts(facts.ids, torch.arange(60) % 2 == 0)
    model = build_model(model_config("tucker", "episodic", 5), SMALL, generator=generator())
    recipe = Recipe(epochs=150, learning_rate=0.05, batch_size=60, l2=0)
    list(Trainer(model, marked, recipe, generator=generator()))
    scores = model.score(facts).detach()
    assert scores[marked.truth].mean() > scores[~marked.truth].mean() + 2
    for loss in ("ranking", "one-vs-all"):
        with pytest.raises(UserError, match=f"the {loss} loss needs true facts only; use the logistic loss"):
            Trainer(model, marked, Recipe(loss=loss), generator=generator())


def test_values_that_are_all_true_go_with_the_ranking_loss():
    facts = random_facts(30, SMALL)
    marked = Facts(facts.ids, torch.ones(30, dtype=torch.bool))
    model = random_model("complex", "episodic", 3, sizes=SMALL)
    assert len(list(Trainer(model, marked, Recipe(loss="ranking", epochs=2), generator=generator()))) == 4


def test_a_fact_counts_by_its_weight():
    facts = random_facts(30, SMALL)
    losses = []
    for weight in (None, torch.ones(30), torch.zeros(30)):
        model = build_model(model_config("complex", "episodic", 3), SMALL, generator=generator())
        trainer = Trainer(model, Facts(facts.ids, weight=weight), Recipe(epochs=1, l2=0), generator=generator())
        losses.append(next(record.loss for record in trainer if isinstance(record, Epoch)))
    assert losses[0] == losses[1] > 0
    assert losses[2] == 0


def test_a_reciprocal_model_needs_one_vs_all_that_predicts_s_and_o_alike():
    model, facts = random_model("complex", "episodic", 3, sizes=SIZES, reciprocal=True), random_facts(20, SIZES)
    with pytest.raises(UserError, match="a reciprocal model predicts s and o alike; got"):
        Trainer(model, facts, Recipe(loss="one-vs-all", predict="s"), generator=generator(3))
    with pytest.raises(UserError, match="a reciprocal model learns by one-vs-all; got the logistic loss"):
        Trainer(model, facts, Recipe(), generator=generator(3))


def test_a_slot_that_the_model_lacks_is_refused():
    model = random_model("rescal", "semantic", 3, sizes=SIZES)
    for recipe in (Recipe(negatives={"t": 1}), Recipe(loss="one-vs-all", predict="ot")):
        with pytest.raises(UserError, match="the semantic Rescal has no time to learn; leave it out of the recipe"):
            Trainer(model, random_facts(20, SIZES), recipe, generator=generator())


def test_every_objective_is_entered_by_its_name():
    assert LOSSES == ("logistic", "ranking", "one-vs-all")
    for name, objective in OBJECTIVES.items():
        assert objective.name == name
        assert type(Recipe(loss=name).objective()) is objective
