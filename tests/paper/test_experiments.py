"""Experiments: work that is done once, choices that never see the test, and pages that tell what was found."""

from __future__ import annotations

import json
import re
import shlex
import sys
from dataclasses import dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from paper.lab import Lab

import paper as experiments
from conftest import ALONE, generator, random_facts, random_model
from paper import as_of, benchmark, lab, paper, projecting, rare, sizes, tables
from recollect import Dims, EpisodicGraph, Facts, Recipe, current, ends, starts
from recollect.evaluation.metrics import summarise
from recollect.evaluation.ranking import rank
from recollect.graph.episodes import split_randomly
from recollect.graph.fact_index import FactIndex
from recollect.io.atomic import write_text
from recollect.models.tensor_model import MODELS, ConT

NAMES = list(experiments.EXPERIMENTS)
COMMITTED = sorted((Path(__file__).parents[1] / "docs" / "results").glob("*.json"))
one_worker = pytest.mark.xdist_group("reproduce")  # all quick experiments are run once, not by every worker


@dataclass(frozen=True)
class Done:
    out: Path
    told: list[tuple[str, float]]

    def found(self, name: str) -> dict:
        return json.loads((self.out / f"{name}.json").read_text(encoding="utf-8"))

    def page(self, name: str) -> str:
        return (self.out / f"{name}.md").read_text(encoding="utf-8")

    def kept(self) -> dict[Path, bytes]:
        return {file: file.read_bytes() for file in (self.out / ".work").rglob("*") if file.is_file()}


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Done:
    out, told = tmp_path_factory.mktemp("reproduced"), []
    pages = list(experiments.reproduce(NAMES, out, quick=True, tell=lambda *words: told.append(words)))
    assert pages == [out / f"{name}.md" for name in NAMES]
    return Done(out, told)


def refuse(*_, **__):
    raise AssertionError("this was done already, or is not to be done")


def without(value, *keys):
    """The same figures without those that differ from run to run."""
    if isinstance(value, dict):
        return {key: without(some, *keys) for key, some in value.items() if key not in keys}
    return [without(some, *keys) for some in value] if isinstance(value, list | tuple) else value


def linked(text: str) -> list[str]:
    return re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)


@one_worker
@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_leaves_figures_and_a_page(done, name, tmp_path):
    found, text = done.found(name), done.page(name)
    assert (found["experiment"], found["quick"]) == (name, True)
    assert {"recollect", "torch", "python"} <= found["versions"].keys()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found["date"])
    about = found.get("series") or found.get("records") or [found]
    assert all(part.keys() & {"settings", "shapes", "batch_size"} for part in about)
    assert text.startswith(f"# {experiments.EXPERIMENTS[name].title}\n\n**A quick run")
    assert f"`recollect reproduce {name} --quick` on {found['date']}" in text
    assert not re.search(r"\b(nan|inf|None)\b", text)
    blocks = re.findall(r"(?:^\|.*\n?)+", text, flags=re.MULTILINE)
    assert blocks
    for block in blocks:
        head, rule, *rows = [line.strip("|\n").split("|") for line in block.splitlines()]
        assert {cell.strip() for cell in rule} == {"---", "---:"}
        assert rows
        assert {len(cells) for cells in (rule, *rows)} == {len(head)}
        assert all(cell.strip() for cells in (head[1:], *rows) for cell in cells)
    assert experiments.write_page(found, tmp_path).read_text(encoding="utf-8") == text  # from the JSON alone
    assert {file.name for file in tmp_path.iterdir()} == {f"{name}.md", *linked(text)}


@one_worker
def test_plots_show_something(done):
    from matplotlib.image import imread

    plots = [file for name in NAMES for file in linked(done.page(name))]
    assert sorted(plots) == sorted(file.name for file in done.out.glob("*.png"))
    assert len(plots) == 5
    for plot in plots:
        pixels = imread(done.out / plot)[..., :3]
        assert min(pixels.shape[:2]) > 300
        assert ((pixels.max(axis=2) - pixels.min(axis=2)) > 0.3).mean() > 0.003  # coloured curves, not a legend alone


@one_worker
@pytest.mark.parametrize("data", ["icews", "gdelt"])
def test_a_table_has_the_papers_figures_beside_ours(done, data):
    name, theirs = f"table-{data}", {"icews": paper.ICEWS, "gdelt": paper.GDELT}[data]
    rows = {row["model"]: row for row in done.found(name)["rows"]}
    assert rows.keys() == theirs.keys()
    for model, row in rows.items():
        (line,) = re.findall(rf"^\| {paper.SHOWN[model]} \| .*/.*$", done.page(name), flags=re.MULTILINE)
        pairs = [(float(a), float(b)) for a, b in re.findall(r"(\S+) / \*\*(\S+)\*\*", line)]
        assert [a for a, _ in pairs] == [*theirs[model]["entity"], *theirs[model]["predicate"]]
        for (_, ours), (slot, key) in zip(pairs, product(("entity", "predicate"), tables.FIGURES), strict=True):
            scale, digits = (1, 3) if key == "mrr" else (100, 2)
            assert ours == round(scale * row[slot][key], digits)


@one_worker
def test_running_again_reads_what_was_done(done, run, monkeypatch):
    before, kept, labs = {name: (done.found(name), done.page(name)) for name in NAMES}, done.kept(), []

    def watched(*words, **settings):
        labs.append(Lab(*words, **settings))
        return labs[-1]

    monkeypatch.setattr(experiments, "Lab", watched)
    monkeypatch.setattr(Lab, "train", refuse)
    for module in (lab, sizes, tables, rare, projecting, as_of):
        for name in {"TrainingRun", "Trainer", "evaluate", "project"} & vars(module).keys():
            monkeypatch.setattr(module, name, refuse)
    code, out, _ = run("reproduce", "all", "--quick", "--out", done.out, "--json")
    assert code == 0
    assert json.loads(out) == [done.found(name) for name in NAMES]
    for name, (found, text) in before.items():
        assert without(done.found(name), "date") == without(found, "date")
        assert done.page(name).replace(done.found(name)["date"], "") == text.replace(found["date"], "")
    assert done.kept() == kept
    assert len(labs) == len(NAMES)
    for some in labs[1:]:  # parameters are counted, which is no work
        assert some.done == pytest.approx(some.expected)
    code, out, _ = run("reproduce", "runtime", "parameters", "runtime", "--quick", "--out", done.out)
    assert (code, out.split()) == (0, [str(done.out / "runtime.md"), str(done.out / "parameters.md")])


@one_worker
def test_shares_told_grow_from_none_to_all(done):
    shares = [share for _, share in done.told]
    assert 0 <= min(shares) < 0.01
    assert 0.9 < max(shares) <= 1
    assert [(a, b) for a, b in pairwise(done.told) if b[1] < a[1] - 1e-9] == []


@pytest.mark.parametrize("file", COMMITTED or [None], ids=lambda file: file and file.stem)
def test_committed_pages_follow_from_committed_figures(file, tmp_path):
    if file is None:
        pytest.skip("no results are committed yet in docs/results")
    found = json.loads(file.read_text(encoding="utf-8"))
    assert (found["experiment"], found["quick"]) == (file.stem, False)
    text = file.with_suffix(".md").read_text(encoding="utf-8")
    assert experiments.write_page(found, tmp_path).read_text(encoding="utf-8") == text
    assert all((file.parent / target).read_bytes().startswith(b"\x89PNG") for target in linked(text))


def test_other_data_and_ranks_take_the_place_of_an_experiments_own(run, tmp_path):
    file, out = tmp_path / "some events.csv", tmp_path / "out"

    def reproduce(changed: int) -> dict:
        rows = [f"e{i % 7},r{i % 3},e{(i * i + changed) % 5},{2000 + i % 6}" for i in range(400)]
        file.write_text("subject,predicate,object,time\n" + "\n".join(rows) + "\n")
        words = ("reproduce", "as-of", "table-rare", "--quick", "--data", file, "--dim", "3")
        code, printed, error = run(*words, "--out", out, "--json")
        assert code == 0, error
        found, rare_found = json.loads(printed)
        assert shlex.split(found["command"]) == ["recollect", *map(str, words[:2] + words[3:])]
        assert {row["dim"] for row in rare_found["rows"]} == {3}
        (record,) = found["records"]
        assert (record["sizes"]["entity"], record["settings"]["dim"]) == (7, 3)
        return found

    first = reproduce(0)
    assert without(reproduce(0), "date") == without(first, "date")
    found = reproduce(1)  # what was found for the file as it was is not taken for what it is
    assert found["records"][0]["auprc"] != first["records"][0]["auprc"]
    page = (out / "as-of.md").read_text(encoding="utf-8")
    assert linked(page) == ["as-of-some-events.png"]
    file.unlink()
    assert experiments.write_page(found, tmp_path).read_text(encoding="utf-8") == page


def test_an_unknown_experiment_is_told_before_anything_is_made(run, tmp_path):
    code, out, error = run("reproduce", "parameters", "figure-9", "--quick", "--out", tmp_path / "new")
    assert (code, out, list(tmp_path.iterdir())) == (2, "", [])
    assert error == f"error: unknown experiment 'figure-9'; choose some of {', '.join(NAMES)}, or all\n"


def test_plots_that_cannot_be_drawn_are_told_before_any_work(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(experiments, "reproduce", refuse)
    code, _, error = run("reproduce", "parameters", "--quick", "--out", tmp_path / "new")
    assert (code, list(tmp_path.iterdir())) == (2, [])
    assert error == "error: figures need matplotlib; install it with: pip install 'recollect[plots]'\n"


def test_work_is_done_once_for_its_settings(tmp_path):
    some = Lab(tmp_path / "lab", expected=10)
    first = some.once("a name/of work", {"dim": 2, "b": 1}, lambda: {"value": 7})
    again = Lab(tmp_path / "lab").once("a name/of work", {"b": 1, "dim": 2}, refuse)
    assert first == again == {"value": 7, "seconds": again["seconds"]}
    assert (some.done, some.seconds) == (1, first["seconds"])
    assert some.once("a name/of work", {"dim": 3, "b": 1}, lambda: {"value": 8}, cost=4)["value"] == 8
    assert some.once("another", {"dim": 2, "b": 1}, lambda: {"value": 9}, cost=0)["value"] == 9
    assert some.once("a name/of work", {"dim": 2, "b": 1}, refuse)["value"] == 7
    assert some.done == 6


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_work_that_fails_leaves_nothing(tmp_path, kind):
    some = Lab(tmp_path)

    def fail():
        raise kind

    with pytest.raises(kind):
        some.once("work", {}, fail)
    assert (list(tmp_path.iterdir()), some.done) == ([], 0)
    assert some.once("work", {}, lambda: {"value": 1})["value"] == 1


def test_a_text_is_replaced_in_one_step(tmp_path, monkeypatch):
    file = tmp_path / "new" / "page.md"
    write_text(file, "θ")
    with monkeypatch.context() as patched:
        patched.setattr("os.replace", refuse)
        with pytest.raises(AssertionError):
            write_text(file, "half")
    assert file.read_text(encoding="utf-8") == "θ"
    write_text(file, "whole")
    assert file.read_text(encoding="utf-8") == "whole"
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("stop", [1, 3])
def test_a_training_goes_on_where_it_was_kept(small_world, tmp_path, monkeypatch, stop):
    monkeypatch.setattr(lab, "KEEP_SECONDS", -1)
    monkeypatch.setattr(lab, "KEEP_SHARE", -1)
    how = {"model": "complex", "dim": 3, "recipe": Recipe(epochs=4, validate_every=1, batch_size=200), "seed": 5}
    whole = Lab(tmp_path).train(small_world, **how)
    place, told = Lab(tmp_path / "lab").place("complex", how), []

    def interrupt(_what, share):
        if share >= stop / 4:
            raise KeyboardInterrupt

    def train(tell):
        return Lab(tmp_path / "lab", tell=tell).train(small_world, **how, place=place)

    with pytest.raises(KeyboardInterrupt):
        train(interrupt)
    for expected in ([epoch / 4 for epoch in range(stop, 5)], []):  # the rest, and then nothing is left to learn
        told.clear()
        cut = train(lambda _, share: told.append(share))
        assert told == expected
        ours, theirs = (dict(learning.training.state()[0]) for learning in (cut, whole))
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
        assert cut.history == whole.history


def test_a_training_of_another_version_is_begun_again(small_world, tmp_path, monkeypatch):
    how = {"model": "complex", "dim": 2, "recipe": Recipe(epochs=2, batch_size=4096)}
    place = Lab(tmp_path).place("complex", how)
    whole = Lab(tmp_path).train(small_world, **how, place=place)
    state = whole.training.optimizer.state
    monkeypatch.setattr(whole.training.optimizer, "state", lambda: {"step": state()["step"]})
    lab._keep(whole, place, 3.0)
    again = Lab(tmp_path).train(small_world, **how, place=place)
    assert again.training.epoch == 2
    for a, b in zip(again.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_time_of_an_interrupted_training_counts(small_world, tmp_path, monkeypatch):
    monkeypatch.setattr(lab, "KEEP_SECONDS", -1)
    how = {"model": "complex", "dim": 2, "recipe": Recipe(epochs=2, batch_size=4096)}
    begun = Lab(tmp_path)
    place = begun.place("complex", how)
    begun.train(small_world, **how, place=place)
    (seconds,) = tmp_path.glob("*.run-seconds")
    assert float(seconds.read_text()) > 0
    seconds.write_text("1000")
    found = begun.once("again", {}, lambda: {"epochs": begun.train(small_world, **how, place=place).training.epoch})
    assert 1000 < found["seconds"] < 1100
    begun.clear()
    assert [file.suffix for file in tmp_path.iterdir()] == [".json"]


def test_an_interrupted_benchmark_does_not_stand_in_the_way_of_other_data(tmp_path, monkeypatch, small_world):
    monkeypatch.setattr(benchmark, "evaluate", refuse)
    for data in ("one", "other"):
        monkeypatch.setattr(Lab, "graph", lambda _, name: small_world if name == "one" else split_randomly(small_world))
        with pytest.raises(AssertionError, match="is not to be done"):
            benchmark.run("icews14", Lab(tmp_path, quick=True, data=data))
    assert len(list(tmp_path.glob("*.run"))) == 2


def value(formula: str, symbols: dict[str, int]) -> int:
    """What a printed formula comes to: factors that stand side by side are multiplied."""
    words = re.findall(r"N_[ept]|r_t|r|\d+|[()+²³]", formula)
    assert "".join(words) == formula.replace(" ", "")
    python = ""
    for before, word in zip(["(", *words], words, strict=False):
        python += "*" if before not in "(+" and word not in ")+²³" else ""
        python += {"²": "**2", "³": "**3"}.get(word) or str(symbols.get(word, word))
    return eval(python)


def test_formulas_are_the_counts():
    assert value("2 (N_e + 3) r² + r_t", {"N_e": 4, "r": 5, "r_t": 7}) == 357
    printed = {(model, form) for model, forms in sizes.FORMULAS.items() for form in forms}
    assert printed == set(ALONE) - {("tree", "semantic"), ("cont", "semantic")}  # which the paper does not have
    for model, form in printed:
        formula = sizes.FORMULAS[model][form]
        for n_e, n_p, n_t, r, r_t in ((258, 20, 72, 40, 40), (7, 3, 5, 2, 2), (7, 3, 5, 2, 11), (31, 17, 13, 6, 1)):
            counted, dims = {"entity": n_e, "predicate": n_p, "time": n_t}, Dims.of(r, time=r_t)
            if r_t == r or (model, form) in (("tree", "episodic"), ("tucker", "episodic")):
                count = MODELS[model].parameter_count(counted, dims, form)
                assert value(formula, {"N_e": n_e, "N_p": n_p, "N_t": n_t, "r": r, "r_t": r_t}) == count


SEARCH = tables.Search(
    data="small",
    dims={"distmult": (3, 5), "cont": (2, 3)},
    rates=(0.5, 0.1),
    epochs=(1, 2, 9),
    recipe=Recipe(validate_every=1, patience=3, batch_size=256),
)


def searched(graph: EpisodicGraph, folder: Path, monkeypatch):
    """What a search finds, which models were tried and tested in which order, and their figures on validation."""
    steps, judged, evaluate, trial = [], [], tables.evaluate, tables._trial

    def watched_trial(some, search, seen, model, *setting):
        steps.append(("trial", model))
        return trial(some, search, seen, model, *setting)

    def watched_evaluate(model, facts, *, known):
        steps.append(("test", next(name for name, kind in MODELS.items() if kind is type(model))))
        assert torch.equal(facts.ids, graph.split("test").ids)
        assert bool(known.contains(graph.facts).all())
        both = FactIndex(Facts.concat([graph.split("train"), graph.split("valid")]), graph.sizes)
        judged.append(summarise([rank(model, graph.split("valid"), slot, known=both)["filtered"] for slot in "so"]))
        return evaluate(model, facts, known=known)

    with monkeypatch.context() as patched:
        patched.setattr(tables, "QUICK", SEARCH)
        patched.setattr(tables, "_split", lambda *_: graph)
        patched.setattr(tables, "_trial", watched_trial)
        patched.setattr(tables, "evaluate", watched_evaluate)
        return tables.run("icews", Lab(folder, quick=True))["rows"], steps, judged


def test_a_search_never_sees_the_test_split(small_world, tmp_path, monkeypatch):
    rows, steps, judged = searched(small_world, tmp_path / "one", monkeypatch)
    assert steps == [(what, model) for model in SEARCH.dims for what in ["trial"] * (4 + 2 + 1) + ["test"] * 2]
    assert any(row["epoch"] < SEARCH.epochs[-1] for row in rows)
    # what was tested is what was chosen, with its best weights
    assert [row["valid_mrr"] for row in rows] == [figures["mrr"] for figures in judged[::2]]
    other = small_world.with_splits({**small_world.splits, "test": random_facts(300, small_world.sizes)})
    changed, _, _ = searched(other, tmp_path / "two", monkeypatch)
    assert all(row["every_slot"]["predicate"] != row["predicate"] for row in rows)
    tested = ("seconds", "entity", "predicate", "time")
    assert without(rows, *tested) == without(changed, *tested)
    assert rows[0]["entity"] != changed[0]["entity"]


@pytest.mark.parametrize("seed", range(6))
def test_the_winner_is_the_best_of_the_finalists(tmp_path, monkeypatch, seed):
    dims, rates, steps = (10, 20, 30), (1e-3, 1e-4, 5e-5), (2, 6, 40)
    settings, tried = list(product(dims, rates)), []
    chances = torch.rand(3, 9, generator=generator(seed)).tolist()
    mrr = {e: dict(zip(settings, row, strict=True)) for e, row in zip(steps, chances, strict=True)}

    def trial(_lab, _search, _graph, _model, r, rate, epochs):
        tried.append((r, rate, epochs))
        return {"valid_mrr": mrr[epochs][r, rate], "best_epoch": epochs, "epochs": epochs}

    monkeypatch.setattr(tables, "_trial", trial)
    search = replace(SEARCH, dims={"cont": dims}, rates=rates, epochs=steps)
    best = tables._search(Lab(tmp_path), search, None, "cont", settings)
    third = sorted(settings, key=mrr[2].get)[-3:]
    winner = max(third, key=mrr[6].get)
    rungs = ((settings, 2), (third, 6), ([winner], 40))
    assert sorted(tried) == sorted((*setting, epochs) for some, epochs in rungs for setting in some)
    assert (best["dim"], best["rate"], best["valid_mrr"]) == (*winner, mrr[40][winner])
    assert {(one["dim"], one["learning_rate"]): one["valid_mrr"] for one in best["trials"]} == {
        setting: mrr[max(epochs for some, epochs in rungs if setting in some)][setting] for setting in settings
    }


def held(facts: Facts) -> dict[tuple[int, ...], set[int]]:
    """The times of every triple."""
    times: dict[tuple[int, ...], set[int]] = {}
    for *triple, t in facts.ids.tolist():
        times.setdefault(tuple(triple), set()).add(t)
    return times


def average_precision(scores: list[float], truth: list[bool]) -> float:
    area = 0.0
    for level in set(scores):
        taken = [y for x, y in zip(scores, truth, strict=True) if x >= level]
        new = sum(y for x, y in zip(scores, truth, strict=True) if x == level)
        area += new * sum(taken) / len(taken)
    return area / sum(truth)


def as_set(facts: Facts) -> set[tuple[int, ...]]:
    return set(map(tuple, facts.ids.tolist()))


def test_a_sample_has_whole_triples(small_world):
    whole = current(small_world)
    for share in (0.3, 0.8):
        some = projecting.sample(small_world, share, seed=1)
        triples = held(some.state).keys()
        assert len(triples) == len(some.state) == int(share * len(whole))
        assert as_set(some.genuine) == {row for row in as_set(whole.true()) if row[:3] in triples}
        assert as_set(some.false) == as_set(some.state) - as_set(some.genuine)
        for ours, theirs in ((some.starts, starts(small_world)), (some.ends, ends(small_world))):
            assert as_set(ours) == {row for row in as_set(theirs) if row[:3] in triples}
        assert as_set(projecting.sample(small_world, share, seed=1).state) == as_set(some.state)
        assert as_set(projecting.sample(small_world, share, seed=2).state) != as_set(some.state)


@pytest.mark.parametrize("dense", [False, True])
def test_exact_tensors_and_states_by_brute_force(small_world, dense):
    drawn = random_facts(300, {"entity": 5, "predicate": 2, "time": 24})  # triples with many runs
    graph = small_world.with_splits({"train": drawn}) if dense else small_world
    times, last = held(graph.facts), len(graph.times) - 1
    began = {triple: sum(t - 1 not in some for t in some) for triple, some in times.items()}
    ended = {triple: sum(t + 1 not in some for t in some if t < last) for triple, some in times.items()}
    truth = [last in some for some in times.values()]
    exact = projecting._exact(graph)
    assert exact["start"] == pytest.approx(average_precision(list(began.values()), truth))
    now = [began[triple] - ended[triple] for triple in times]
    assert exact["start-end"] == pytest.approx(average_precision(now, truth))
    triples = Facts.of([(*triple, 0) for triple in sorted(times)])
    states = as_of.states(graph.facts, triples, graph.sizes)
    assert states.tolist() == [[t in times[triple] for t in range(last + 1)] for triple in sorted(times)]


@pytest.mark.parametrize(("name", "form"), [("rescal", "semantic"), ("complex", "semantic"), ("distmult", "episodic")])
def test_states_are_judged_as_by_brute_force(small_world, name, form):
    facts, n, last = random_facts(300, {"entity": 23, "predicate": 2, "time": 3}), 23, len(small_world.times) - 1
    some = projecting.sample(small_world.with_splits({"train": facts.with_slot("t", last - facts.t)}), 0.8, seed=0)
    model = random_model(name, form, 3, sizes=small_world.sizes)
    found = projecting._judge(model, some)
    cells = list(product(range(n), range(2), range(n)))
    score = dict(zip(cells, model.score(Facts.of([(*cell, last) for cell in cells])).tolist(), strict=True))
    scores = [score[s, p, o] for s, p, o, _ in some.state.ids.tolist()]
    assert found["auprc"] == pytest.approx(average_precision(scores, some.state.truth.tolist()))
    for kind, facts in (("", some.genuine), (" false", some.false)):
        triples, hits = held(facts).keys(), {"raw": 0, "filtered": 0}
        for s, p, o in triples:
            for others in ([(e, p, o) for e in range(n)], [(s, p, e) for e in range(n)]):
                better = [cell for cell in others if score[cell] > score[s, p, o]]
                hits["raw"] += len(better) < 10
                hits["filtered"] += len([cell for cell in better if cell not in triples]) < 10
        assert hits["raw"] < hits["filtered"]
        for setting, count in hits.items():
            assert found[f"{setting}{kind}"] == pytest.approx(count / (2 * len(triples)))


@pytest.mark.parametrize("name", projecting.PROJECTED)
def test_ends_are_learned_in_times_alone(small_world, name):
    some = projecting.sample(small_world, 0.8, seed=0)
    learned = random_model(name, "episodic", 3, torch.float32, sizes=small_world.sizes)
    before = {key: weights.clone() for key, weights in learned.state_dict().items()}
    recipe = Recipe(loss="ranking", sigmoid=False, learning_rate=0.02)
    few, many = (replace(projecting.QUICK[0], episodic=replace(recipe, epochs=epochs)) for epochs in (1, 60))
    tables_of_ends = [projecting._learn_ends(series, some, learned, 0) for series in (few, many)]
    for key, weights in learned.state_dict().items():
        assert torch.equal(weights, before[key]), key
    first, last = (projecting._time_mrr(learned, table, some.ends, some) for table in tables_of_ends)
    assert last > first
    assert last > projecting._time_mrr(learned, tables_of_ends[1], some.starts, some)


@pytest.mark.parametrize("name", projecting.PROJECTED)
def test_the_semantic_counterpart_learns_the_state(small_world, tmp_path, monkeypatch, name):
    some, seen, train = projecting.sample(small_world, 0.8, seed=0), [], Lab.train

    def watched(self, graph, **how):
        seen.append((how["model"], how["form"], how["dim"], how["seed"]))
        assert as_set(graph.facts.true()) == as_set(some.genuine)
        assert as_set(graph.split("train")) == as_set(some.state)
        return train(self, graph, **how)

    monkeypatch.setattr(Lab, "train", watched)
    found = projecting._semantic(Lab(tmp_path), projecting.QUICK[0], small_world, some, name, 4, 3)
    assert seen == [("rescal" if name == "cont" else name, "semantic", 4, 3)]
    assert 0 < found["auprc"] <= 1


def test_a_model_that_reconstructs_everything_knows_what_holds(small_world, tmp_path, monkeypatch):
    n, m = small_world.sizes["entity"], small_world.sizes["predicate"]
    cells = torch.zeros(len(small_world.times), n, m, n)
    for s, p, o, t in small_world.facts.ids.tolist():
        cells[t, s, p, o] = 1
    model = ConT(small_world.sizes, Dims.of(n, predicate=m))
    model = model.part({"entity": torch.eye(n), "predicate": torch.eye(m), "time": cells})
    static = random_model("rescal", "semantic", 3, sizes=small_world.sizes)
    monkeypatch.setattr(
        Lab, "train", lambda *_, form="episodic", **__: SimpleNamespace(model=model if form == "episodic" else static)
    )
    counts = torch.bincount(small_world.facts.t).tolist()
    least = sorted(counts)[len(counts) // 2]
    found = as_of._curves(Lab(tmp_path), replace(as_of.QUICK[0], least=least), small_world)
    assert found["true"] == [count for count in counts if count >= least]
    assert found["times"] == [small_world.times.label(t) for t, count in enumerate(counts) if count >= least]
    for memory in ("start-end", "episodic"):
        assert found["auprc"][memory] == pytest.approx([1.0] * len(found["times"]))
    assert max(found["auprc"]["static"]) < 1
    assert found["auprc"]["start"][-1] < 0.8
    series = replace(projecting.QUICK[0], sample=1.0)
    point = projecting._point(Lab(tmp_path), series, small_world, "cont", n, 0)
    assert point["closed"]["starts time mrr"] == point["closed"]["ends time mrr"] == pytest.approx(1)
    assert point["closed"]["start-end"]["auprc"] == pytest.approx(1)
    assert point["closed"]["start"]["auprc"] < 0.8


@one_worker
def test_a_line_of_a_benchmark_is_the_mean_of_its_seeds(done, tmp_path):
    found = done.found("benchmark-icews14")
    row = found["rows"][0]
    again = json.loads(json.dumps(row)) | {"seed": 1, "valid_mrr": row["valid_mrr"] + 0.2}
    row["figures"]["entity"]["mrr"], again["figures"]["entity"]["mrr"] = 0.25, 0.75
    settings = found["settings"] | {"entries": [found["settings"]["entries"][0] | {"seeds": [0, 1]}]}
    page = benchmark.page({**found, "settings": settings, "rows": [row, again]}, tmp_path)
    line = next(line for line in page.splitlines() if "ConT" in line)
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[3] == f"**0.500 ± {2**-1.5:.3f}**"
    assert cells[7] == f"{row['valid_mrr'] + 0.1:.3f}"
    assert cells[-1] == "2"


@one_worker
def test_what_a_benchmark_does_not_recall_is_not_told(done):
    rows = done.found("benchmark-icews05-15")["rows"]
    assert "predicate" in rows[0]["figures"]
    assert "time" not in rows[0]["figures"]
    static = next(row for row in done.found("ablation-icews14")["rows"] if row["form"] == "semantic")
    assert "time" not in static["figures"]
