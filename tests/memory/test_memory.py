"""A memory answers by label: recall of every slot, statuses, probabilities, embeddings, evaluation."""

from __future__ import annotations

import io
from dataclasses import asdict

import polars as pl
import pytest
import torch
from rich.console import Console

from conftest import memory_of, random_model
from recollect import Facts, Memory, ModelConfig, Recipe, TrainingRun, UserError, load, read, split_randomly
from recollect.engine import parallel
from recollect.evaluation.calibration import UNCALIBRATED
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import SLOT_NAMES, EpisodicGraph, encode
from recollect.memory.answering import answers as answers_module
from recollect.memory.learning.progress import ProgressBar
from recollect.training.trainer import Epoch, Step

SLOTS = "spot"


@pytest.fixture(scope="module")
def memory(small_world) -> Memory:
    recipe = Recipe(learning_rate=0.02, epochs=40, validate_every=10, batch_size=256)
    return Memory.learn(small_world, model="complex", dim=16, recipe=recipe)


def question_about(memory, slot, split="test", row=0):
    """Return the labels of a fact of a split without one slot, and the fact."""
    fact = memory.graph.split(split)[row : row + 1]
    labels = memory.graph.table(fact).row(0, named=True)
    return {name: label for name, label in labels.items() if name != SLOT_NAMES[slot]}, fact


@pytest.mark.parametrize("slot", SLOTS)
def test_recall_returns_all_labels_stored_first_then_by_descending_score(memory, slot):
    given, fact = question_about(memory, slot)
    axis = memory.graph.axis(slot)
    table = memory.recall(**given, top=len(axis))
    assert table.columns == [SLOT_NAMES[slot], "score", "probability", "status"]
    assert sorted(table[SLOT_NAMES[slot]]) == sorted(axis.labels)
    predicted = table.filter(status="predicted")
    assert table["status"].to_list() == sorted(table["status"], reverse=True)  # stored, then predicted
    assert predicted["score"].is_sorted(descending=True)
    scores = memory.scorer.score_against(fact, slot)[0]
    ids = [axis.index(label) for label in table[SLOT_NAMES[slot]]]
    assert table["score"].to_list() == pytest.approx(scores[ids].tolist(), rel=1e-5, abs=1e-5)
    assert set(table.filter(status="stored")["probability"]) <= {1.0}
    logits = torch.tensor(predicted["score"].to_list()).double()
    context = torch.tensor(1.0 + table.filter(status="stored").height).double().log()
    expected = memory.calibration.probability((logits.log_softmax(0).exp()).logit(), slot, context)
    assert predicted["probability"].to_list() == pytest.approx(expected.tolist(), rel=1e-3, abs=1e-9)


@pytest.mark.parametrize("slot", SLOTS)
def test_answers_are_stored_exactly_where_they_were_trained_on(memory, slot):
    given, fact = question_about(memory, slot, "train")
    axis = memory.graph.axis(slot)
    table = memory.recall(**given, top=len(axis))
    trained = {tuple(row) for row in memory.graph.split("train").ids.tolist()}
    for label, status in table.select(SLOT_NAMES[slot], "status").rows():
        row = fact.with_slot(slot, axis.index(label)).ids[0]
        assert status == ("stored" if tuple(row.tolist()) in trained else "predicted")
    assert "stored" in set(table["status"])


@pytest.mark.parametrize("slot", SLOTS)
def test_fewer_answers_are_the_first_of_more_answers_to_the_last_bit(memory, slot):
    given, _ = question_about(memory, slot)
    many = memory.recall(**given, top=40)
    for top in (0, 1, 2, 7):
        assert memory.recall(**given, top=top).equals(many.head(top))
    assert memory.recall(**given, top=-1).height == 0


def mixed_questions(memory, count=12):
    """Return facts of the test split as a frame, with another slot null in each row."""
    frame = memory.graph.table(memory.graph.split("test")[:count])
    place = pl.int_range(pl.len()) % 4
    names = list(SLOT_NAMES.values())
    return frame.with_columns(pl.when(place != i).then(pl.col(name)).alias(name) for i, name in enumerate(names))


def test_many_questions_are_answered_like_one_after_another(memory):
    questions = mixed_questions(memory)
    found = memory.recall_many(questions, top=99)
    assert found.columns == ["query", "subject", "predicate", "object", "time", "score", "probability", "status"]
    assert found["query"].is_sorted()
    for number, question in enumerate(questions.rows(named=True)):
        answers = found.filter(query=number)
        (open_slot,) = (name for name, label in question.items() if label is None)
        assert answers.filter(status="predicted")["score"].is_sorted(descending=True)
        answers, wanted = answers.sort(open_slot), memory.recall(**question, top=99).sort(open_slot)
        assert answers[open_slot].to_list() == wanted[open_slot].to_list()
        assert answers["status"].to_list() == wanted["status"].to_list()
        for column in ("score", "probability"):
            assert answers[column].to_list() == pytest.approx(wanted[column].to_list(), rel=1e-4, abs=1e-6)
        for name, label in question.items():
            if label is not None:
                assert answers[name].unique().to_list() == [label]


def test_many_questions_are_answered_in_blocks_on_several_threads(memory, monkeypatch):
    questions = mixed_questions(memory)
    labels = ["query", "subject", "predicate", "object", "time"]
    whole = memory.recall_many(questions, top=99).sort(labels)
    monkeypatch.setattr(answers_module, "BLOCK_BYTES", 1)
    monkeypatch.setattr(parallel, "MIN_WORK", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        parts = memory.recall_many(questions, top=99).sort(labels)
    finally:
        torch.set_num_threads(before)
    assert parts.select(labels).equals(whole.select(labels))
    assert parts["score"].to_list() == pytest.approx(whole["score"].to_list(), rel=1e-4, abs=1e-6)


def test_a_column_that_is_left_out_is_open_in_every_row(memory):
    questions = memory.graph.table(memory.graph.split("test")[:3]).drop("object")
    assert memory.recall_many(questions, top=2).height == 6
    assert memory.recall_many(questions.to_dict(as_series=False), top=2)["query"].to_list() == [0, 0, 1, 1, 2, 2]
    nothing = memory.recall_many(questions.head(0))
    assert nothing.height == 0
    assert nothing.columns == memory.recall_many(questions).columns


def test_mistakes_in_a_table_of_questions_name_the_row_or_the_column(memory):
    facts = memory.graph.table(memory.graph.split("test")[:3])
    with pytest.raises(UserError, match="row 0: recall fills one slot, and 0 are open; give all but one of subject"):
        memory.recall_many(facts)
    partly = facts.drop("object").with_columns(time=pl.Series(["2000-01", None, None]))
    with pytest.raises(UserError, match="row 1: recall fills one slot, and 2 are open"):
        memory.recall_many(partly)
    with pytest.raises(UserError, match="unknown column 'who'; name the columns subject, predicate, object, time"):
        memory.recall_many(facts.rename({"subject": "who"}))
    with pytest.raises(UserError, match="unknown predicate 'visit'; did you mean 'Visits'"):
        memory.recall_many(facts.drop("object").with_columns(predicate=pl.lit("visit")))
    with pytest.raises(UserError, match="row 2 has no time; give subject, predicate, object, time of every fact"):
        memory.probability(facts.with_columns(time=pl.Series(["2000-01", "2000-01", None])))


@pytest.mark.parametrize("slot", SLOTS)
def test_the_probability_of_a_fact_is_that_of_recalling_one_of_its_slots(memory, slot):
    facts = Facts.concat([memory.graph.split("train")[:3], memory.graph.split("test")[:3]])
    frame = memory.graph.table(facts)
    found = memory.probability(frame, slot=SLOT_NAMES[slot])
    assert found.columns == [*frame.columns, "score", "probability", "status"]
    assert found.select(frame.columns).equals(frame)
    assert found["status"].to_list()[:3] == ["stored"] * 3
    name = SLOT_NAMES[slot]
    for row in found.rows(named=True):
        given = {other: row[other] for other in frame.columns if other != name}
        answer = memory.recall(**given, top=99).filter(pl.col(name) == row[name]).row(0, named=True)
        assert row["score"] == pytest.approx(answer["score"], rel=1e-4, abs=1e-6)
        assert row["probability"] == pytest.approx(answer["probability"], rel=1e-4, abs=1e-6)
        assert row["status"] == answer["status"]


def test_the_embedding_of_a_label_is_a_row_of_its_table(memory):
    graph, model = memory.graph, memory.model
    entity, predicate, time = graph.entities.labels[3], "Visits", "2000-05"
    assert torch.equal(memory.embedding(entity), model.entity[3])
    assert torch.equal(memory.embedding(predicate), model.predicate[graph.predicates.index(predicate)])
    assert torch.equal(memory.embedding(time), model.time[graph.times.index(time)])
    assert torch.equal(memory.embedding("2000-05-17", kind="time"), memory.embedding(time))
    assert not memory.embedding(entity).requires_grad
    with pytest.raises(UserError, match="unknown entity 'Nobody'; "):
        memory.embedding("Nobody")
    with pytest.raises(UserError, match="unknown kind 'person'; choose one of entity, predicate, time"):
        memory.embedding(entity, kind="person")


@pytest.mark.parametrize(("kind", "count"), [("entity", 23), ("predicate", 7), ("time", 24)])
def test_embeddings_are_a_frame_of_labels_and_arrays(memory, kind, count):
    frame = memory.embeddings(kind)
    assert frame.columns == ["label", "embedding"]
    assert frame["embedding"].dtype == pl.Array(pl.Float32, (16, 2))
    assert frame.height == count
    label = frame["label"][count - 1]
    assert frame["embedding"].to_numpy()[-1].tolist() == memory.embedding(label).tolist()


def test_embeddings_of_inverse_predicates_and_knots_are_left_out(small_world):
    recipe = Recipe(loss="one-vs-all", epochs=1)
    memory = Memory.learn(
        small_world, model="distmult", dim=4, static=True, reciprocal=True, time_levels=(1, 5), recipe=recipe
    )
    assert memory.embeddings("predicate").height == len(small_world.predicates)
    times = memory.embeddings("time")["embedding"].to_numpy()
    assert times.shape == (len(small_world.times), 4)
    assert times == pytest.approx(memory.model.rows("t").detach().numpy())


def test_a_label_of_two_kinds_needs_its_kind():
    graph = read(pl.DataFrame({"s": ["a", "b"], "p": ["a", "r"], "o": ["b", "a"], "t": [0, 1]}))
    memory = Memory.learn(graph, model="distmult", dim=2, recipe=Recipe(epochs=1))
    with pytest.raises(UserError, match="'a' is entity and predicate; say which, like kind='entity'"):
        memory.embedding("a")
    assert torch.equal(memory.embedding("a", kind="predicate"), memory.model.predicate[0])


def test_a_memory_prints_as_one_short_line(memory, small_world):
    count = len(small_world.split("train"))
    assert repr(memory) == (
        f"Memory(ComplEx, episodic, dim 16 + history; world: 23 entities, 7 predicates, 24 times, {count:,} facts)"
    )


class Recorder:
    """A callback that keeps all records."""

    def __init__(self):
        self.records = []

    def on_record(self, record):
        self.records.append(record)


def test_callbacks_receive_every_record(small_world):
    first, second = Recorder(), Recorder()
    recipe = Recipe(epochs=2, batch_size=512, validate_every=1)
    memory = Memory.learn(small_world, model="distmult", dim=2, recipe=recipe, callbacks=[first, second])
    assert first.records == second.records
    epochs = [record for record in first.records if isinstance(record, Epoch)]
    assert [asdict(record) for record in epochs] == memory.about["training"]["history"]
    assert any(isinstance(record, Step) for record in first.records)


def test_progress_shows_epochs_rate_loss_and_mrr(small_world):
    recipe = Recipe(epochs=2, batch_size=256, validate_every=1)
    run = TrainingRun(small_world, ModelConfig(model="distmult", dim=2), recipe=recipe)
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=120)
    with ProgressBar(run, console=console) as bar:
        for record in run:
            bar.on_record(record)
    shown = output.getvalue()
    for text in ("2/2 epochs", "100%", "facts/s", f"loss {run.history[-1].loss:.4f}", f"MRR {run.history[-1].mrr:.3f}"):
        assert text in shown


def test_learning_with_progress_writes_to_standard_error_only(small_world, capfd):
    Memory.learn(small_world, model="distmult", dim=2, recipe=Recipe(epochs=1), progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "1/1 epochs" in err


def test_withheld_facts_are_ranked_high(memory):
    report = memory.evaluate("test").to_dict()
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


def test_a_loaded_memory_answers_the_same(memory, tmp_path):
    memory.save(tmp_path / "world.memory")
    again = load(str(tmp_path / "world.memory"))
    question = {
        "predicate": "President of",
        "time": "2000-05",
        "object": memory.graph.table(memory.graph.facts)["object"][0],
    }
    assert again.recall(**question).equals(memory.recall(**question))
    assert Memory.load(tmp_path / "world.memory").recall(**question).equals(again.recall(**question))
    assert again.evaluate("valid") == memory.evaluate("valid")


def test_a_semantic_memory_knows_no_times(small_world):
    recipe = Recipe(epochs=2)
    memory = Memory.learn(small_world, model="rescal", dim=4, form="semantic", recipe=recipe)
    table = memory.recall(subject=small_world.entities.labels[0], predicate="Visits", top=3)
    assert table.height == 3
    stored = memory.graph.table(memory.graph.split("train")).row(0, named=True)
    everything = memory.recall(subject=stored["subject"], predicate=stored["predicate"], top=999)
    assert everything.filter(pl.col("object") == stored["object"])["status"].item() == "stored"
    assert set(memory.evaluate().filtered) == {"subject", "predicate", "object", "entity"}
    with pytest.raises(UserError, match="semantic memory, which has no times"):
        memory.recall(subject="x", predicate="y", time="2000-01")
    with pytest.raises(UserError, match="a semantic memory has no time; choose slots among spo"):
        memory.evaluate(slots="spot")


def test_without_calibration_the_probability_is_that_of_the_paper():
    logits = torch.tensor([-2.0, 0.0, 3.0], dtype=torch.float64)
    assert torch.equal(UNCALIBRATED.probability(logits, "o"), logits.sigmoid())


def test_an_unsplit_graph_is_learned_whole_and_cannot_be_evaluated(small_world):
    graph = small_world.with_splits({"train": small_world.facts})
    memory = Memory.learn(graph, model="distmult", dim=4, recipe=Recipe(epochs=2, validate_every=1))
    assert memory.graph.split("train") is graph.split("train")
    assert memory.about["training"]["valid_mrr"] > 0
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
def test_a_wrong_question_is_refused_in_one_sentence(memory, question, message):
    with pytest.raises(UserError, match=message):
        memory.recall(**question)


def test_the_time_of_a_question_may_be_finer_than_the_axis_but_not_outside_it(memory):
    entity = memory.graph.entities.labels[0]
    with pytest.raises(UserError, match="time '1999-01' is not on this axis; it runs from 2000-01 to 2001-12"):
        memory.recall(subject=entity, predicate="Visits", time="1999-01")
    assert memory.recall(subject=entity, predicate="Visits", time="2000-01-17").height == 10


def test_a_memory_with_nan_scores_refuses_to_answer(memory):
    model = random_model("complex", "episodic", sizes=memory.graph.sizes)
    with torch.no_grad():
        model.entity[3] = float("nan")
    broken = memory_of(model, memory.graph)
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
    assert load(tmp_path / "m").evaluate("valid").facts == 1


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
    assert load(tmp_path / "m").evaluate("holdout").facts == 10


@pytest.fixture(scope="module")
def triples_withheld(small_world) -> EpisodicGraph:
    """The world with two of five triples withheld at all times."""
    part = torch.randint(5, (20_000,), generator=torch.Generator().manual_seed(1))
    facts = small_world.facts
    chosen = part[encode(facts, small_world.sizes, "spo")]
    return small_world.with_splits(
        {"train": facts[chosen > 1], "valid": facts[chosen == 0], "test": facts[chosen == 1]}
    )


def number_withheld(graph: EpisodicGraph, answers: pl.DataFrame, names: list[str]) -> int:
    """Return how many answers are facts of the validation and test splits."""
    withheld = graph.table(Facts.concat([graph.split("valid"), graph.split("test")]))
    return answers.join(withheld.select(names).unique(), on=names, how="semi").height


@pytest.mark.parametrize("form", ["episodic", "semantic"])
def test_models_alone_are_calibrated_on_what_is_not_stored(triples_withheld, form):
    # over all predicted answers to many questions, probabilities add up to about the number that is true
    graph, recipe = triples_withheld, Recipe(epochs=30, learning_rate=0.02, validate_every=10)
    memory = Memory.learn(graph, model="complex", dim=8, form=form, recipe=recipe, history=False)
    questions = graph.table(graph.split("test")).drop("subject" if form == "episodic" else ["subject", "time"])
    answers = memory.recall_many(questions, top=100, include="predicted")
    asked = questions.with_row_index("query").cast({"query": pl.Int64})
    answers = answers.join(asked, on="query").select("subject", *questions.columns, "probability")
    true = number_withheld(graph, answers, answers.columns[:-1])
    assert answers["probability"].sum() == pytest.approx(true, rel=0.25)


def test_what_a_semantic_memory_knows_is_calibrated_on_what_is_not_stored(triples_withheld):
    graph, recipe = triples_withheld, Recipe(epochs=30, learning_rate=0.02, validate_every=10)
    memory = Memory.learn(graph, model="complex", dim=8, form="semantic", recipe=recipe)
    facts = memory.know(include="predicted", top=10**6)
    true = number_withheld(graph, facts, ["subject", "predicate", "object"])
    assert facts["probability"].sum() == pytest.approx(true, rel=0.2)


def test_the_only_predicate_of_a_semantic_memory_is_as_likely_as_any_cell():
    rows = [(f"e{i}", "likes", f"e{j}", i * j % 7) for i in range(12) for j in range(12) if (i + j) % 3 == 0]
    graph = split_randomly(read(pl.DataFrame(rows, schema=["subject", "predicate", "object", "time"], orient="row")))
    memory = Memory.learn(graph, model="complex", dim=2, form="semantic", recipe=Recipe(epochs=1))
    found = memory.recall(subject="e0", object="e1", include="predicted")
    assert found["probability"].item() == pytest.approx(graph.counts["train"] / 12**2, rel=0.3)


def test_labels_may_be_given_as_numbers():
    graph = read(pl.DataFrame({"s": [1, 2], "p": 7, "o": [2, 1], "t": [0, 1]}))
    memory = Memory.learn(graph, model="distmult", dim=2, recipe=Recipe(epochs=1))
    assert memory.recall(subject=1, predicate=7, time=0).height == 2


def test_known_covers_all_splits(memory):
    assert bool(memory.known.contains(memory.graph.facts).all())
    assert isinstance(memory.known, FactIndex)
    assert not memory.known.contains(Facts.of([(0, 0, 0, 0)])).any()
