"""A memory by label: recall of every slot, statuses, probabilities, evaluation."""

from __future__ import annotations

import polars as pl
import pytest
import torch

from recollect import Facts, Memory, Recipe, UserError, load, read, split_randomly
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import SLOT_NAMES

SLOTS = "spot"


@pytest.fixture(scope="module")
def memory(small_world) -> Memory:
    recipe = Recipe(learning_rate=0.02, epochs=40, validate_every=10, batch_size=256)
    return Memory.learn(small_world, model="complex", dim=16, recipe=recipe)


@pytest.mark.parametrize("slot", SLOTS)
def test_recall_is_the_models_ranking_by_label(memory, slot):
    fact = memory.graph.split("test")[:1]
    labels = memory.graph.table(fact).row(0, named=True)
    given = {name: label for name, label in labels.items() if name != SLOT_NAMES[slot]}
    axis = memory.graph.axis(slot)
    table = memory.recall(**given, top=len(axis))
    assert table.columns == [SLOT_NAMES[slot], "score", "probability", "status"]
    assert sorted(table[SLOT_NAMES[slot]]) == sorted(axis.labels)
    with torch.no_grad():
        scores = memory.model.score_against(fact, slot)[0]
    for label, score, probability, status in table.rows():
        row = fact.with_slot(slot, torch.tensor([axis.index(label)]))
        assert score == pytest.approx(scores[axis.index(label)].item(), rel=1e-5)
        assert probability == pytest.approx(memory.calibration.probability(torch.tensor(score), slot).item())
        trained = bool((memory.graph.split("train").ids == row.ids).all(dim=1).any())
        assert status == ("stored" if trained else "predicted")
    assert table["score"].is_sorted(descending=True)
    assert memory.recall(**given, top=2).rows() == table.head(2).rows()


def test_what_was_withheld_is_found(memory):
    report = memory.evaluate("test")
    assert report["filtered"]["entity"]["mrr"] > 0.5
    assert report["filtered"]["predicate"]["mrr"] > 0.7
    assert report["filtered"]["entity"]["mrr"] > report["raw"]["entity"]["mrr"]
    slots = report["calibration"].values()
    assert sum(both["after"]["log_loss"] for both in slots) < sum(both["before"]["log_loss"] for both in slots)


def test_probabilities_over_time_are_in_order(memory):
    s, p, o, _ = memory.graph.table(memory.graph.facts[:1]).row(0)
    table = memory.probabilities(s, p, o)
    assert table["time"].to_list() == memory.graph.times.labels
    assert table["probability"].is_between(0, 1).all()


def test_saved_and_loaded_it_answers_the_same(memory, tmp_path):
    memory.save(tmp_path / "world.memory")
    again = load(str(tmp_path / "world.memory"))
    question = {
        "predicate": "President of",
        "time": "2000-05",
        "object": memory.graph.table(memory.graph.facts)["object"][0],
    }
    assert again.recall(**question).equals(memory.recall(**question))
    assert again.evaluate("valid") == memory.evaluate("valid")


def test_a_semantic_memory_knows_no_times(small_world):
    recipe = Recipe(epochs=2)
    memory = Memory.learn(small_world, model="rescal", dim=4, form="semantic", recipe=recipe)
    table = memory.recall(subject=small_world.entities.labels[0], predicate="Visits", top=3)
    assert table.height == 3
    stored = memory.graph.table(memory.graph.split("train")).row(0, named=True)
    everything = memory.recall(subject=stored["subject"], predicate=stored["predicate"], top=999)
    assert everything.filter(pl.col("object") == stored["object"])["status"].item() == "stored"
    assert set(memory.evaluate()["filtered"]) == {"subject", "predicate", "object", "entity"}
    with pytest.raises(UserError, match="semantic memory, which has no times"):
        memory.recall(subject="x", predicate="y", time="2000-01")
    with pytest.raises(UserError, match="a semantic memory has no time; choose slots among spo"):
        memory.evaluate(slots="spot")


def test_an_unsplit_graph_is_learned_without_validation(small_world):
    graph = small_world.with_splits({"train": small_world.facts})
    memory = Memory.learn(graph, model="distmult", dim=4, recipe=Recipe(epochs=2))
    assert memory.about["training"]["valid_mrr"] is None
    assert memory.calibration.probability(torch.tensor(0.0), "o").item() == 0.5
    with pytest.raises(UserError, match="has no 'test' split; it has train"):
        memory.evaluate()


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"subject": "a"}, "recall fills one slot, and 3 are open"),
        ({"subject": "a", "predicate": "b", "object": "c", "time": "d"}, "recall fills one slot, and 0 are open"),
        ({"subject": "Nobody", "predicate": "Visits", "time": "2000-01"}, "unknown entity 'Nobody'; "),
        ({"predicate": "visit", "object": "?", "time": "2000-01"}, "unknown predicate 'visit'; did you mean 'Visits'"),
        ({"predicate": "PRESIDENT OF", "object": "?", "time": "2000-01"}, "did you mean 'President of'"),
    ],
)
def test_bad_questions(memory, question, message):
    with pytest.raises(UserError, match=message):
        memory.recall(**question)


def test_times_of_a_question(memory):
    entity = memory.graph.entities.labels[0]
    with pytest.raises(UserError, match="time '1999-01' is not on this axis; it runs from 2000-01 to 2001-12"):
        memory.recall(subject=entity, predicate="Visits", time="1999-01")
    assert memory.recall(subject=entity, predicate="Visits", time="2000-01-17").height == 10


def test_a_memory_with_nan_scores_refuses_to_answer(memory):
    model = type(memory.model)(memory.graph.sizes, 4)
    with torch.no_grad():
        model.entity[3] = float("nan")
    broken = Memory(model, memory.graph, memory.calibration, {})
    entity = memory.graph.entities.labels[0]
    with pytest.raises(UserError, match="NaN"):
        broken.recall(subject=entity, predicate="Visits", time="2000-01")
    with pytest.raises(UserError, match="NaN"):
        broken.evaluate("test")


def test_values_and_empty_splits_are_kept(tmp_path):
    frame = pl.DataFrame({"s": ["a", "b"], "p": "r", "o": ["b", "a"], "t": [0, 1], "v": [True, False], "w": [1.5, 2]})
    graph = split_randomly(read(frame, columns={"value": "v", "weight": "w"}))
    assert not len(graph.split("test"))
    memory = Memory.learn(graph, model="distmult", dim=2, recipe=Recipe(epochs=1))
    memory.save(tmp_path / "m")
    again = load(tmp_path / "m").graph.split("train")
    assert again.truth.tolist() == [True, False]
    assert again.weight.tolist() == [1.5, 2.0]
    with pytest.raises(UserError, match="the test split of table has no facts"):
        memory.evaluate()


def test_a_tiny_graph_whose_every_answer_is_true(tmp_path):
    names = ["ann", "bob", "cy"]
    rows = [(a, p, b, "2001") for a in names for p in ("knows", "likes") for b in names]
    graph = split_randomly(read(pl.DataFrame(rows, schema=list("spot"), orient="row")))
    memory = Memory.learn(graph, model="complex", dim=4, recipe=Recipe(epochs=2))
    memory.save(tmp_path / "m")
    table = load(tmp_path / "m").recall(subject="ann", predicate="knows", time="2001")
    assert table["probability"].is_finite().all()
    assert load(tmp_path / "m").evaluate("valid")["facts"] == 1


def test_loading_draws_nothing_from_the_global_generator(memory, tmp_path):
    memory.save(tmp_path / "m")
    torch.manual_seed(0)
    first = torch.rand(1)
    torch.manual_seed(0)
    load(tmp_path / "m")
    assert torch.equal(torch.rand(1), first)


def test_splits_of_other_names_are_kept(small_world, tmp_path):
    graph = small_world.with_splits({"train": small_world.facts[10:], "holdout": small_world.facts[:10]})
    memory = Memory.learn(graph, model="distmult", dim=2, recipe=Recipe(epochs=1))
    memory.save(tmp_path / "m")
    assert load(tmp_path / "m").evaluate("holdout")["facts"] == 10


def test_a_semantic_memory_is_calibrated_for_questions_without_time(small_world):
    """Over all subjects of many questions, probabilities add up to about as many as are true at some time."""
    recipe = Recipe(epochs=30, learning_rate=0.02, validate_every=10)
    memory = Memory.learn(small_world, model="complex", dim=8, form="semantic", recipe=recipe)
    facts = small_world.split("test")[:200]
    with torch.no_grad():
        scores = memory.model.score_against(facts, "s")
    probability = memory.calibration.probability(scores, "s").mean().item()
    triples = FactIndex(memory.model.as_modelled(small_world.facts), small_world.sizes)
    rows, _ = triples.find(memory.model.as_modelled(facts), "s")
    assert probability == pytest.approx(len(rows) / scores.numel(), rel=0.35)


def test_labels_that_look_like_numbers():
    graph = read(pl.DataFrame({"s": [1, 2], "p": 7, "o": [2, 1], "t": [0, 1]}))
    memory = Memory.learn(graph, model="distmult", dim=2, recipe=Recipe(epochs=1))
    assert memory.recall(subject=1, predicate=7, time=0).height == 2


def test_known_covers_all_splits(memory):
    assert bool(memory.known.contains(memory.graph.facts).all())
    assert isinstance(memory.known, FactIndex)
    assert not memory.known.contains(Facts.of([(0, 0, 0, 0)])).any()
