"""What a memory knows as of a time, and the semantic memory that it projects to."""

from __future__ import annotations

import json

import pytest
from test_projection import PROJECTABLE, graph_of, one_hot

from conftest import memory_of, random_facts, random_model
from recollect import EpisodicGraph, Memory, Recipe, UserError, load

TIME = "2001-05"


@pytest.fixture(scope="module")
def memory(small_world) -> Memory:
    dims = {"dim": len(small_world.entities), "predicate_dim": len(small_world.predicates)}
    recipe = Recipe(learning_rate=0.02, epochs=5, validate_every=5, batch_size=256)
    return Memory.learn(small_world, model="cont", **dims, recipe=recipe, history=False)


@pytest.fixture(scope="module")
def saved(memory, tmp_path_factory):
    folder = tmp_path_factory.mktemp("memories")
    memory.save(folder / "world")
    for name, form in (("cont", "episodic"), ("tree", "episodic"), ("rescal", "semantic")):
        model = random_model(name, form, 2, sizes=memory.graph.sizes)
        memory_of(model, memory.graph).save(folder / name)
    return folder


def holding(graph: EpisodicGraph, time: str) -> set[tuple[str, ...]]:
    """What the train split holds at a time, by label."""
    return {row[:3] for row in graph.table(graph.split("train")).rows() if row[3] == time}


def test_know_lists_all_cells_as_of_a_time_with_what_holds_first(memory):
    graph = memory.graph
    n, stored = len(graph.entities), holding(graph, TIME)
    table = memory.know(as_of=TIME, top=10**6)
    assert table.columns == ["subject", "predicate", "object", "score", "probability", "status"]
    assert table.height == len({row[:3] for row in table.rows()}) == n * n * len(graph.predicates)
    assert {row[:3] for row in table.rows() if row[5] == "stored"} == stored
    assert set(table["status"]) == {"stored", "predicted"}
    assert table["status"].to_list() == ["stored"] * len(stored) + ["predicted"] * (table.height - len(stored))
    assert table["score"][len(stored) :].is_sorted(descending=True)
    assert table["probability"][: len(stored)].to_list() == [1.0] * len(stored)
    assert table["probability"].is_sorted(descending=True)
    assert table["probability"].is_between(0, 1).all()
    assert memory.know(as_of=f"{TIME}-17", top=10**6).equals(table)
    assert memory.know().height == 10
    assert memory.know().equals(memory.know(as_of=graph.times.labels[-1]))
    assert memory.know(as_of=TIME, top=-1).height == memory.know(as_of=TIME, top=0).height == 0
    s, p, o = table.row(3)[:3]
    for given_labels in ({"subject": s}, {"predicate": p, "object": o}, {"subject": s, "predicate": p, "object": o}):
        wanted = [row for row in table.rows(named=True) if given_labels.items() <= row.items()]
        shown = memory.know(**given_labels, as_of=TIME, top=10**6).rows(named=True)
        for column in ("score", "probability"):
            numbers = [[row[column] for row in rows if row["status"] == "predicted"] for rows in (shown, wanted)]
            assert numbers[0] == pytest.approx(numbers[1], abs=1e-5)
        assert [row["status"] for row in shown] == [row["status"] for row in wanted]
        assert all(given_labels.items() <= row.items() for row in shown)


def test_one_hot_embeddings_know_exactly_what_holds(small_world):
    memory = memory_of(one_hot(small_world.sizes), small_world)
    for time in small_world.times.labels[::6]:
        stored = holding(small_world, time)
        table = memory.know(as_of=time, top=len(stored) + 5)
        assert table["status"].to_list() == ["stored"] * len(stored) + ["predicted"] * 5
        assert table["probability"][len(stored) - 1] == 1.0
        assert table["probability"][len(stored)] < 0.5


def test_what_has_never_ended_is_known():
    graph = graph_of(random_facts(9).with_slot("t", 0), 1)
    memory = memory_of(one_hot(graph.sizes), graph)
    n = len(holding(graph, "0"))
    assert memory.know(top=n + 3)["status"].to_list() == ["stored"] * n + ["predicted"] * 3


def test_a_projected_memory_answers_as_its_episodic_one_does(memory, tmp_path):
    semantic = memory.project(TIME)
    semantic.save(tmp_path / "then")
    again = load(tmp_path / "then")
    wanted = memory.know(as_of=TIME, top=60)
    found = again.know(top=60)
    assert found.filter(status="predicted").equals(wanted.filter(status="predicted"))
    labels = ["subject", "predicate", "object"]  # when a run began is forgotten, so the order of stored facts is too
    assert found.filter(status="stored").sort(labels).equals(wanted.filter(status="stored").sort(labels))
    assert (again.model.config.form, again.about["projection"]["as_of"]) == ("semantic", TIME)
    assert {row[:3] for row in again.graph.table(again.graph.split("train")).rows()} == holding(memory.graph, TIME)
    s, p = wanted.row(0)[:2]
    shown, known = again.recall(subject=s, predicate=p), memory.know(subject=s, predicate=p, as_of=TIME)
    assert shown["object"].to_list() == known["object"].to_list()
    assert shown["status"].to_list() == known["status"].to_list()
    predicted = known["status"] == "predicted"
    for column in ("score", "probability"):
        assert shown.filter(predicted)[column].to_list() == pytest.approx(
            known.filter(predicted)[column].to_list(), abs=1e-5
        )
    with pytest.raises(UserError, match="this is a semantic memory already; project an episodic one"):
        again.project()


MISTAKES = [
    (["know", "world", "--subject", "Nobody"], "unknown entity 'Nobody'; "),
    (["know", "world", "--predicate", "visit"], "unknown predicate 'visit'; did you mean 'Visits'"),
    (["know", "world", "--as-of", "1999-01"], "time '1999-01' is not on this axis; it runs from 2000-01 to 2001-12"),
    (["know", "world", "--as-of", "soon"], "cannot read time 'soon' as a month; write it like '2000-01'"),
    (["know", "tree"], f"the episodic Tree is not linear in one time, so it has no projection; {PROJECTABLE}"),
    (["know", "rescal", "--as-of", TIME], "this is a semantic memory, which knows one time only"),
    (["project", "world", "--as-of", "1999-01"], "time '1999-01' is not on this axis"),
    (["project", "tree"], "the episodic Tree is not linear in one time"),
    (["project", "rescal"], "this is a semantic memory already"),
    (["project", "nothing"], "nothing: no such memory; "),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES)
def test_a_mistake_is_reported_in_one_sentence(run, saved, tmp_path, words, message):
    command, name, *options = words
    out = ["--out", tmp_path / "m"] if command == "project" else []
    code, shown, error = run(command, saved / name, *options, *out)
    assert (code, shown) == (2, "")
    assert message in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_know_and_project_by_command(run, saved, tmp_path):
    memory = load(saved / "cont")
    words = ["--predicate", "Visits", "--top", 4]
    wanted = memory.know(predicate="Visits", as_of=TIME, top=4).to_dicts()
    code, shown, error = run("know", saved / "cont", *words, "--as-of", TIME, "--json")
    assert (code, json.loads(shown), error) == (0, wanted, "")
    shown = run("know", saved / "cont", *words, "--as-of", TIME)[1]
    assert all(text in shown for text in ("probability", wanted[3]["subject"], f"{wanted[3]['probability']:.3f}"))
    out = tmp_path / "then"
    code, shown, error = run("project", saved / "cont", "--as-of", TIME, "--out", out, "--json")
    assert (code, error) == (0, "")
    summary = json.loads(shown)
    assert (summary["out"], summary["model"], summary["form"], summary["as_of"]) == (
        str(out),
        "rescal",
        "semantic",
        TIME,
    )
    assert json.loads(run("know", out, *words, "--json")[1]) == wanted
    code, _, error = run("project", saved / "cont", "--out", out)
    assert code == 2
    assert "exists; choose another --out, or replace it with --force" in error
    assert load(out).about["projection"]["as_of"] == TIME
    code, shown, _ = run("project", saved / "cont", "--out", out, "--force")
    assert code == 0
    assert f"{len(holding(memory.graph, '2001-12'))} facts as of 2001-12" in shown
    assert load(out).about["projection"]["as_of"] == "2001-12"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diary").write_text("keep me")
    code, _, error = run("project", saved / "cont", "--out", tmp_path / "mine", "--force")
    assert (code, "exists and is not a memory" in error) == (2, True)
    assert sorted(p.name for p in tmp_path.rglob("*") if p.parent.name != "then") == ["diary", "mine", "then"]
