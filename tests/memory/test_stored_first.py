"""Answers come from the store first; predicted ones by model and history, with believable probabilities and reasons."""

from __future__ import annotations

import polars as pl
import pytest
import torch

from recollect import Memory, Recipe, UserError, dataset, load, read, split_by_time, split_randomly
from recollect.evaluation.calibration import predicted_logits
from recollect.graph.facts import SLOT_NAMES
from recollect.memory.answering.scorer import fit_weights, score_parts

RECIPE = Recipe(learning_rate=0.02, epochs=10, validate_every=5, batch_size=256)


@pytest.fixture(scope="module")
def memory(small_world) -> Memory:
    return Memory.learn(small_world, model="complex", dim=8, recipe=RECIPE)


@pytest.fixture(scope="module")
def history(small_world) -> Memory:
    return Memory.learn(small_world, model="history")


def questions(memory: Memory, split: str = "train", count: int = 40) -> pl.DataFrame:
    """Return questions for the object of facts of a split."""
    return memory.graph.table(memory.graph.split(split)[:count]).drop("object")


@pytest.mark.parametrize("kind", ["memory", "history"])
def test_no_predicted_answer_is_above_a_stored_one(kind, request):
    memory = request.getfixturevalue(kind)
    found = memory.recall_many(questions(memory), top=10**6)
    for _, answers in found.group_by("query"):
        statuses = answers["status"].to_list()
        assert statuses == sorted(statuses, reverse=True)
        assert set(answers.filter(status="stored")["probability"]) == {1.0}
        assert answers.filter(status="predicted")["probability"].max() < 1.0


def test_stored_times_come_newest_first(history):
    fact = history.graph.table(history.graph.split("train")).row(0, named=True)
    times = history.recall(**{name: fact[name] for name in ("subject", "predicate", "object")}, include="stored")
    assert times["time"].to_list() == sorted(times["time"], reverse=True)
    assert (
        fact["time"]
        in history.recall(
            **{name: fact[name] for name in ("subject", "predicate", "object")}, include="stored", top=99
        )["time"].to_list()
    )


def test_stored_and_predicted_answers_can_be_asked_for_alone(memory):
    asked = questions(memory)
    both = memory.recall_many(asked, top=10**6)
    for status in ("stored", "predicted"):
        assert memory.recall_many(asked, top=10**6, include=status).equals(both.filter(status=status))
    with pytest.raises(UserError, match="cannot include 'known'; choose one of all, stored, predicted"):
        memory.recall_many(asked, include="known")


def test_a_memory_of_history_alone_is_saved_and_loaded(history, tmp_path):
    history.save(tmp_path / "m")
    again = load(tmp_path / "m")
    asked = questions(history)
    assert again.recall_many(asked, top=9).equals(history.recall_many(asked, top=9))
    assert again.know(as_of="2001-05", top=60).equals(history.know(as_of="2001-05", top=60))
    assert repr(again).startswith("Memory(history; world")
    with pytest.raises(UserError, match="this memory is history alone and has no model"):
        again.project()


def test_a_memory_with_model_and_history_is_saved_and_loaded(memory, tmp_path):
    memory.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.scorer.weights == memory.scorer.weights
    assert again.calibration == memory.calibration
    assert again.recall_many(questions(memory), top=9).equals(memory.recall_many(questions(memory), top=9))


def test_the_weights_of_model_and_history_are_those_that_make_validation_answers_likeliest(memory):
    graph, scorer = memory.graph, memory.scorer
    valid = graph.split("valid")
    scored = score_parts(scorer.parts, valid, "o", 64)
    fitted = fit_weights(scored, "o", known=memory.known, start=(0.0, 1.0))

    def likelihood(a: float, b: float) -> float:
        scores = a * memory.model.score_against(valid, "o") + b * scorer.history.score_against(valid, "o")
        others = memory.known.mask(valid, "o").scatter(1, valid.o[:, None], False)
        return scores.masked_fill(others, -torch.inf).log_softmax(1).gather(1, valid.o[:, None]).mean().item()

    best = likelihood(*fitted)
    assert min(fitted) >= 0
    for a, b in ((0.05, 0), (-0.05, 0), (0, 0.05), (0, -0.05)):
        if min(fitted[0] + a, fitted[1] + b) >= 0:
            assert likelihood(fitted[0] + a, fitted[1] + b) <= best + 1e-3


def test_predicted_logits_are_those_of_a_softmax_without_stored_candidates():
    scores = torch.tensor([[0.0, 1.0, 2.0, 50.0]])
    stored = torch.tensor([[False, False, False, True]])
    share = torch.tensor([0.0, 1.0, 2.0]).double().softmax(0)
    assert predicted_logits(scores, stored)[0, :3].tolist() == pytest.approx(share.logit().tolist())
    assert predicted_logits(scores, stored)[0, 3] == -torch.inf
    alone = predicted_logits(torch.tensor([[3.0, 4.0]]), torch.tensor([[False, True]]))
    assert torch.isfinite(alone[0, 0])


def test_predicted_probabilities_of_the_shown_answers_are_reliable(history):
    # among answers to test questions, those said to be likely are likely, and all add up to about those that are true
    graph = history.graph
    found = history.recall_many(questions(history, "test", 400), top=10, include="predicted")
    facts = [row[1:5] for row in found.rows()]
    truth = {row[:4] for row in graph.table(graph.split("test")).rows()}
    true = sum(fact in truth for fact in facts)
    assert found["probability"].sum() == pytest.approx(true, rel=0.35)


def test_reasons_are_stored_facts_of_the_pair_whose_shares_add_up(history):
    found = history.recall_many(questions(history, "test", 20), top=5, explain=10**6)
    stored = {row[:4] for row in history.graph.table(history.graph.split("train")).rows()}
    assert found.filter(status="stored")["why"].null_count() == found.filter(status="stored").height
    for answer in found.filter(status="predicted").rows(named=True):
        shares = [fact["share"] for fact in answer["why"]]
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) <= 1 + 1e-6
        for fact in answer["why"]:
            assert tuple(fact[name] for name in SLOT_NAMES.values()) in stored
            assert {fact["subject"], fact["object"]} == {answer["subject"], answer["object"]}


def test_the_share_of_the_models_in_a_lead_and_that_of_history_make_one(memory, history):
    scorer, graph = memory.scorer, memory.graph
    asked = graph.split("test")[:3]
    found = memory.recall_many(graph.table(asked).drop("object"), top=4, explain=1).filter(status="predicted")
    for answer in found.filter(pl.col("model_share").is_not_null()).rows(named=True):
        fact, own = asked[answer["query"] : answer["query"] + 1], graph.entities.index(answer["object"])
        a, b = scorer.weights["o"]
        parts = [a * scorer.models[0].score_against(fact, "o")[0], b * scorer.history.score_against(fact, "o")[0]]
        by_model, by_history = ((part[own] - part.mean()).item() for part in parts)
        assert answer["model_share"] == pytest.approx(by_model / (by_model + by_history), abs=1e-3)
    assert found["model_share"].null_count() < found.height
    assert "model_share" not in history.recall_many(questions(history, "test", 3), explain=1).columns


def test_the_reason_for_a_planted_answer_is_the_planted_fact(tmp_path):
    rows = [(f"a{i}", "visits", f"b{i}", i) for i in range(12)] + [(f"b{i}", "hosts", f"a{i}", i) for i in range(13)]
    memory = Memory.learn(read(pl.DataFrame(rows, schema=list("spot"), orient="row")), model="history")
    answer = memory.recall(subject="b12", predicate="visits", object=None, time=12, explain=1)
    assert answer.height  # nobody visits from b12: popularity alone answers
    answer = memory.recall(subject="a12", predicate="visits", time=12, explain=1).row(0, named=True)
    assert answer["object"] == "b12"
    assert answer["why"][0] | {"share": 1} == {
        "subject": "b12", "predicate": "hosts", "object": "a12", "time": "12", "share": 1,
    }  # fmt: skip
    assert answer["why"][0]["share"] > 0.5


def test_a_memory_without_history_cannot_explain(small_world):
    memory = Memory.learn(small_world, model="distmult", dim=4, recipe=Recipe(epochs=1), history=False)
    with pytest.raises(UserError, match="no history to explain its answers by; learn it with history=True"):
        memory.recall_many(questions(memory, count=1), explain=3)


def test_what_was_never_stored_is_known_with_a_probability(history):
    graph = history.graph
    held = {row[:3] for row in graph.table(graph.split("train")).rows() if row[3] == "2001-05"}
    found = history.know(as_of="2001-05", top=500)
    assert {row[:3] for row in found.filter(status="stored").rows()} == held
    predicted = found.filter(status="predicted")
    assert predicted["probability"].is_sorted(descending=True)
    assert predicted["probability"].is_between(0, 1).all()
    withheld = {row[:3] for row in graph.table(graph.split("test")).rows() if row[3] == "2001-05"}
    likeliest = {row[:3] for row in predicted.head(2 * len(withheld)).rows()}
    assert len(withheld & likeliest) > 0.3 * len(withheld)
    for given in ({"subject": predicted["subject"][0]}, {"predicate": predicted["predicate"][0]}):
        (name, label), *_ = given.items()
        assert set(history.know(**given, as_of="2001-05", top=50)[name]) == {label}


@pytest.mark.parametrize("options", [{"model": "history"}, {"model": "complex", "dim": 8, "history": False}])
def test_what_is_known_at_any_time_of_a_sparse_graph_is_calibrated(options):
    # over all times, probabilities add up to about the number of withheld facts
    graph = dataset("world", countries=4, years=8)
    chosen = torch.randperm(len(graph.facts), generator=torch.Generator().manual_seed(0))[:400]
    graph = split_randomly(graph.with_splits({"train": graph.facts[chosen]}), valid=0.1, test=0.1)
    if options["model"] != "history":
        options = options | {"recipe": Recipe(epochs=40, learning_rate=0.02, validate_every=10), "static": False}
    memory = Memory.learn(graph, **options)
    found = [memory.know(as_of=time, include="predicted", top=10**6) for time in graph.times.labels]
    total = sum(answers["probability"].sum() for answers in found)
    assert total == pytest.approx(graph.counts["valid"] + graph.counts["test"], rel=0.4)


def test_facts_after_the_last_stored_time_calibrate_no_projection(small_world):
    graph = split_by_time(small_world.with_splits({"train": small_world.facts}), valid=0.2, test=0.2)
    memory = Memory.learn(graph, model="complex", dim=4, recipe=Recipe(epochs=2), history=False, static=False)
    found = memory.know(as_of=graph.times.labels[3], include="predicted", top=10**6)
    assert found["probability"].max() <= 1 / 3
    withheld = split_randomly(small_world.with_splits({"train": small_world.facts}), valid=0.2, test=0.2)
    sure = Memory.learn(withheld, model="complex", dim=4, recipe=Recipe(epochs=2), history=False, static=False)
    assert sure.project().calibration.highest["cell"] > 0.9


def test_a_memory_that_forgot_everything_knows_nothing_for_sure(small_world):
    graph = small_world.with_splits({"train": small_world.facts})
    memory = Memory.learn(graph, model="complex", dim=4, recipe=Recipe(epochs=1), history=False, static=False)
    memory.forget(time="2000..2001")
    assert memory.know(include="stored").height == 0
    assert memory.know(top=5)["probability"].max() <= 1 / 3


def test_history_is_trained_and_asked_by_command(run, tmp_path):
    out = tmp_path / "world.memory"
    code, shown, _ = run("train", "world", "--model", "history", "--out", out)
    assert (code, "history of" in shown) == (0, True)
    memory = load(out)
    fact = memory.graph.table(memory.graph.split("test")).row(0, named=True)
    words = ["--subject", fact["subject"], "--predicate", fact["predicate"], "--time", fact["time"]]
    code, shown, _ = run("recall", out, *words, "--why", "--include", "predicted")
    assert (code, "why" in shown, "stored " in shown) == (0, True, False)
    assert run("recall", out, *words, "--include", "some")[0] == 2
