"""Search: it continues its study, never reads the test split, and its best settings are a recipe."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import model_config
from recollect import UserError
from recollect.training import search as search_module
from recollect.training.recipe import RECIPES, parse_recipe
from recollect.training.search import SPACE, Search

SHORT = replace(RECIPES["modern"], epochs=3, validate_every=1, batch_size=512)
FILLED = SHORT.for_model("distmult")  # without dropout and label smoothing


def search_in(folder, graph, name: str = "distmult", form: str = "episodic", dim: int = 3, **options) -> Search:
    recipe = options.pop("recipe", SHORT)
    return Search(graph, model_config(name, form, dim, **options), recipe, folder)


def test_a_search_finds_settings_that_a_recipe_is_read_from(small_world, tmp_path):
    reported = []
    found = search_in(tmp_path, small_world).run(60, lambda *words: reported.append(words), runs=3)
    assert len(found["trials"]) == 3
    searched = ("learning_rate", "penalty", "smoothness")
    assert found["trials"][0]["settings"] == {name: getattr(FILLED, name) for name in searched}  # the recipe itself
    assert found["best"]["valid_mrr"] == max(trial["valid_mrr"] for trial in found["trials"])
    assert json.loads((tmp_path / "search.json").read_text()) == json.loads(json.dumps(found))
    assert parse_recipe(str(tmp_path / "search.json")) == replace(FILLED, **found["best"]["settings"])
    assert reported[0][0] == "run 1"
    assert all(0 <= share <= 1 for _, share in reported)


@pytest.mark.parametrize(
    ("name", "form", "unused"),
    [
        ("cont", "both", set()),
        ("tree", "episodic", {"time_rate"}),
        ("distmult", "semantic", {"time_rate", "smoothness"}),
        ("rescal", "semantic", {"time_rate", "smoothness"}),
    ],
)
def test_only_options_that_a_model_uses_are_searched(small_world, tmp_path, name, form, unused):
    every_option = replace(SHORT, dropout=0.1, label_smoothing=0.1)
    search = search_in(tmp_path, small_world, name, form, recipe=every_option)
    assert search.space().keys() == SPACE.keys() - unused


def test_a_search_continues_the_study_of_its_folder(small_world, tmp_path):
    first = search_in(tmp_path, small_world).run(60, runs=2)
    second = search_in(tmp_path, small_world).run(60, runs=4)
    assert (len(first["trials"]), len(second["trials"])) == (2, 6)
    assert second["trials"][:2] == first["trials"]
    settings = [json.dumps(trial["settings"]) for trial in second["trials"]]
    assert len(set(settings)) == len(settings)
    assert sum(second["importance"].values()) == pytest.approx(1)
    assert (tmp_path / "importance.png").stat().st_size > 1000
    with pytest.raises(UserError, match="holds a search for other data, model, dims or recipe"):
        search_in(tmp_path, small_world, dim=4).run(60)


def test_a_search_leaves_the_log_level_of_optuna_as_it_was(small_world, tmp_path):
    optuna = pytest.importorskip("optuna")
    before = optuna.logging.get_verbosity()
    search_in(tmp_path, small_world).run(60, runs=1)
    assert optuna.logging.get_verbosity() == before


def test_an_interrupted_search_writes_what_it_has_found(small_world, tmp_path):
    def interrupt_second(label: str, _share: float) -> None:
        if label.startswith("run 2"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search_in(tmp_path, small_world).run(60, interrupt_second)
    found = json.loads((tmp_path / "search.json").read_text())
    assert [trial["settings"]["learning_rate"] for trial in found["trials"]] == [FILLED.learning_rate]


def test_a_recipe_whose_trial_was_interrupted_is_tried_again(small_world, tmp_path):
    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search_in(tmp_path, small_world).run(60, interrupt)
    assert not (tmp_path / "search.json").exists()
    found = search_in(tmp_path, small_world).run(60, runs=1)
    assert found["trials"][0]["settings"]["learning_rate"] == FILLED.learning_rate


def test_a_search_has_no_test_split_to_read(small_world, tmp_path):
    search = search_in(tmp_path, small_world)
    assert set(search.graph.splits) == {"train", "valid"}
    without = small_world.with_splits({name: small_world.splits[name] for name in ("train", "valid")})
    assert search._settings() == search_in(tmp_path, without)._settings()


def test_what_cannot_be_searched_is_refused(small_world, tmp_path, monkeypatch):
    with pytest.raises(UserError, match="has no valid split to choose by"):
        search_in(tmp_path, small_world.with_splits({"train": small_world.split("train")}))
    with pytest.raises(UserError, match="DistMult needs one dim for entity and predicate"):
        search_in(tmp_path, small_world, predicate_dim=4).run(60)
    with pytest.raises(UserError, match="a budget is a number of minutes above 0; got 0"):
        search_in(tmp_path, small_world).run(0)
    with pytest.raises(UserError, match="not one run came to a validation in that time"):
        search_in(tmp_path / "short", small_world).run(1e-6)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UserError, match=r"pip install 'recollect\[search\]'"):
        search_in(tmp_path, small_world).run(1)


WORKER = """
import sys
from pathlib import Path
from dataclasses import replace
from recollect import dataset
from recollect.models.config import ModelConfig
from recollect.training import search
from recollect.training.recipe import RECIPES

folder, storage, runs = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
search.HEARTBEAT_SECONDS, search.GRACE_SECONDS = 1, 3
recipe = replace(RECIPES["modern"], epochs=3, validate_every=1, batch_size=512)

def show(label, share):
    print(label, flush=True)
    if runs > 50:  # the worker that is killed: its trial never ends
        import time
        time.sleep(600)

graph = dataset("world", countries=6, years=2)
search.Search(graph, ModelConfig(model="distmult", dim=3), recipe, folder, storage=storage).run(60, show, runs=runs)
"""


def start_worker(folder: Path, storage: str, runs: int) -> subprocess.Popen:
    words = [sys.executable, "-c", WORKER, str(folder), storage, str(runs)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})


@pytest.mark.long
def test_the_trial_of_a_killed_worker_is_taken_up_by_another(tmp_path):
    """Two workers on one storage; one gets SIGKILL in the middle of a trial: no trial and no result is lost."""
    optuna = pytest.importorskip("optuna")
    storage = f"sqlite:///{tmp_path / 'shared.db'}"
    victim = start_worker(tmp_path / "one", storage, runs=99)
    try:
        assert victim.stdout.readline().startswith("run 1")  # in the middle of the recipe's own trial
        other = start_worker(tmp_path / "two", storage, runs=2)
        assert other.wait(300) == 0  # joins, works next to it, leaves
        victim.send_signal(signal.SIGKILL)
        victim.wait(60)
    finally:
        victim.kill()
        victim.stdout.close()
    study = optuna.load_study(study_name="recollect", storage=storage)
    killed = study.trials[0]
    assert [trial.state.name for trial in study.trials] == ["RUNNING", "COMPLETE", "COMPLETE"]
    time.sleep(4)  # longer than the grace
    third = start_worker(tmp_path / "three", storage, runs=2)
    assert third.wait(300) == 0
    for process in (other, third):
        process.stdout.close()
    study = optuna.load_study(study_name="recollect", storage=storage)
    assert [trial.state.name for trial in study.trials] == ["FAIL", *["COMPLETE"] * 4]
    assert study.trials[3].params == killed.params  # taken up again, with its settings
    found = json.loads((tmp_path / "three" / "search.json").read_text())
    assert [trial["trial"] for trial in found["trials"]] == [1, 2, 3, 4]
    killed_settings = {name: getattr(FILLED, name) for name in killed.params}
    assert killed.params == killed_settings


def test_workers_share_a_study_in_a_journal_file(small_world, tmp_path):
    journal = str(tmp_path / "study.log")
    for number in (1, 2):
        config = model_config("distmult", "episodic", 3)
        found = Search(small_world, config, SHORT, tmp_path / str(number), storage=journal).run(60, runs=1)
        assert len(found["trials"]) == number
    with pytest.raises(UserError, match="the storage holds a search for other data, model, dims or recipe"):
        Search(small_world, model_config("distmult", "episodic", 4), SHORT, tmp_path / "3", storage=journal).run(1)


@pytest.mark.parametrize(
    ("storage", "complaint"),
    [
        ("nosuch://host/db", r"the storage of the study: cannot be written \("),
        ("sqlite:////nowhere/at/all.db", "the storage of the study: cannot be written"),
    ],
)
def test_a_storage_that_cannot_be_opened_is_one_sentence(small_world, tmp_path, storage, complaint):
    config = model_config("distmult", "episodic", 3)
    with pytest.raises(UserError, match=complaint):
        Search(small_world, config, SHORT, tmp_path, storage=storage).run(1)


def test_a_missing_driver_of_a_storage_is_named(monkeypatch):
    optuna = pytest.importorskip("optuna")
    monkeypatch.setitem(sys.modules, "psycopg2", None)
    with pytest.raises(UserError, match=r"the storage needs a package that is not here \(.*psycopg"):
        search_module.open_storage(optuna, "postgresql://somebody@localhost/study")
