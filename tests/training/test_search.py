"""Search: it goes on where it was, never sees the test split, and its best settings can be learned with."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from recollect import Dims, UserError
from recollect.training import search as module
from recollect.training.recipe import RECIPES, parse_recipe
from recollect.training.search import Search

SHORT = replace(RECIPES["modern"], epochs=3, validate_every=1, batch_size=512)


def searching(graph, folder, **told) -> Search:
    given = {"model": "distmult", "rank": Dims.of(3), "recipe": SHORT, "folder": folder, **told}
    return Search(graph, **given)


def test_it_finds_settings_that_a_recipe_is_read_from(small_world, tmp_path):
    told = []
    found = searching(small_world, tmp_path).run(60, lambda *words: told.append(words), runs=3)
    assert len(found["trials"]) == 3
    used = module.SPACE.keys() - {"time_rate"}
    assert found["trials"][0]["settings"] == {name: getattr(SHORT, name) for name in used}  # the recipe itself
    assert found["best"]["valid_mrr"] == max(trial["valid_mrr"] for trial in found["trials"])
    assert json.loads((tmp_path / "search.json").read_text()) == json.loads(json.dumps(found))
    recipe = parse_recipe(str(tmp_path / "search.json"))
    assert recipe == replace(SHORT, **found["best"]["settings"])
    assert told[0][0] == "run 1"
    assert all(0 <= share <= 1 for _, share in told)


@pytest.mark.parametrize(
    ("model", "form", "unused"),
    [
        ("cont", "both", set()),
        ("tree", "episodic", {"time_rate"}),
        ("distmult", "semantic", {"time_rate", "smoothness"}),
    ],
)
def test_only_what_matters_to_a_model_is_searched(small_world, tmp_path, model, form, unused):
    search = searching(small_world, tmp_path, model=model, form=form)
    assert search._space().keys() == module.SPACE.keys() - unused


def test_it_goes_on_with_the_study_that_is_there(small_world, tmp_path):
    first = searching(small_world, tmp_path).run(60, runs=2)
    second = searching(small_world, tmp_path).run(60, runs=4)
    assert (len(first["trials"]), len(second["trials"])) == (2, 6)
    assert second["trials"][: len(first["trials"])] == first["trials"]
    settings = [json.dumps(trial["settings"]) for trial in second["trials"]]
    assert len(set(settings)) == len(settings)
    assert sum(second["importance"].values()) == pytest.approx(1)
    assert (tmp_path / "importance.png").stat().st_size > 1000
    with pytest.raises(UserError, match="holds a search for other data, model, ranks or recipe"):
        searching(small_world, tmp_path, dim=Dims.of(4)).run(60)


def test_what_an_interrupted_search_has_found_is_kept(small_world, tmp_path):
    def interrupt(doing: str, _share: float) -> None:
        if doing.startswith("run 2"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        searching(small_world, tmp_path).run(60, interrupt)
    kept = json.loads((tmp_path / "search.json").read_text())
    assert [trial["settings"]["learning_rate"] for trial in kept["trials"]] == [SHORT.learning_rate]


def test_a_recipe_that_was_interrupted_is_tried_again(small_world, tmp_path):
    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        searching(small_world, tmp_path).run(60, interrupt)
    assert not (tmp_path / "search.json").exists()
    found = searching(small_world, tmp_path).run(60, runs=1)
    assert found["trials"][0]["settings"]["learning_rate"] == SHORT.learning_rate


def test_the_test_split_is_not_there_to_look_at(small_world, tmp_path):
    search = searching(small_world, tmp_path)
    assert set(search.graph.splits) == {"train", "valid"}
    without = small_world.with_splits({name: small_world.splits[name] for name in ("train", "valid")})
    a = searching(small_world, tmp_path / "a")._about()
    assert a == searching(without, tmp_path / "b")._about()


def test_what_cannot_be_searched_is_told(small_world, tmp_path, monkeypatch):
    with pytest.raises(UserError, match="has no valid split to choose by"):
        searching(small_world.with_splits({"train": small_world.split("train")}), tmp_path)
    with pytest.raises(UserError, match="DistMult needs one rank for entity and predicate"):
        searching(small_world, tmp_path, dim=Dims.of(3, predicate=4)).run(60)
    with pytest.raises(UserError, match="a budget is a number of minutes above 0; got 0"):
        searching(small_world, tmp_path).run(0)
    with pytest.raises(UserError, match="not one run came to a validation in that time"):
        searching(small_world, tmp_path / "short").run(1e-6)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UserError, match=r"pip install 'recollect\[search\]'"):
        searching(small_world, tmp_path).run(1)


def test_the_command_prints_a_table_and_json(run, tmp_path, monkeypatch):
    whole = Search.run
    monkeypatch.setattr(Search, "run", lambda self, minutes, tell=None: whole(self, 60 * minutes, tell, runs=1))
    words = ("search", "world", "--model", "distmult", "--dim", 3, "--epochs", 1, "--validate-every", 1)
    code, out, _ = run(*words, "--budget", 1, "--out", tmp_path / "s")
    assert code == 0
    assert "learn with it: recollect train world --model distmult --dim 3 --recipe" in out
    code, out, _ = run(*words, "--budget", 1, "--out", tmp_path / "s", "--json")
    assert code == 0
    assert json.loads(out)["best"]["valid_mrr"] > 0
    code, _, err = run(*words, "--budget", 1, "--out", tmp_path / "s", "--seed", 1)
    assert code == 2
    assert "choose another --out" in err


def test_the_baseline_command(run):
    code, out, _ = run("baseline", "world", "--split", "valid", "--slots", "so", "--json")
    assert code == 0
    rows = {(row["baseline"], row["slot"]): row["mrr"] for row in json.loads(out)}
    assert rows["recency", "entity"] > rows["frequency", "entity"] > 0.3
    code, out, _ = run("baseline", "world", "--split", "valid", "--slots", "t")
    assert code == 0
    assert "recency" in out
    code, _, err = run("baseline", "world", "--split", "dev")
    assert (code, "has no 'dev' split" in err) == (2, True)
