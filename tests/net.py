"""All that the golden, fixture and snapshot tests call of the library: a changed interface is followed here only.

Arguments keep the names and values of version 0.1 (models, forms, recipe options, slots), whatever they are called now;
the functions return plain numbers, strings, lists and dictionaries.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer
from typer.testing import CliRunner

from recollect import EpisodicGraph, Facts, Memory, ModelConfig, TimeAxis, TrainingRun, Vocabulary, dataset, load
from recollect.cli.main import app
from recollect.evaluation.ranking import rank
from recollect.graph.fact_index import FactIndex
from recollect.models.tensor_model import TensorModel
from recollect.models.zoo import build_model
from recollect.training.recipe import parse_recipe
from recollect.training.trainer import Epoch

HELP_COLUMNS = 100
QUESTION = "Bran Nethova | Ambassador of | ? | 2001-04\n"  # on standard input, for `ask`


def use_one_thread() -> None:
    """Compute on one thread, as the test suite does."""
    torch.set_num_threads(1)


# --- graphs ---


def small_world() -> EpisodicGraph:
    """Return the embedded world of 23 entities, 7 predicates and 24 months: 887 training facts."""
    return dataset("world", countries=6, years=2)


def random_graph(
    entities: int,
    predicates: int,
    times: int,
    facts: int,
    *,
    weighted: bool = False,
    some_false: bool = False,
) -> EpisodicGraph:
    """Return a graph of at most `facts` distinct random facts, a tenth of them its valid split.

    Ids are drawn with density 1/√x, so that low ones are frequent.
    """
    dice = np.random.default_rng(0)
    sizes = np.array([entities, predicates, entities, times])
    drawn = (dice.random((facts, 4)) ** 2 * sizes).astype(np.int64)
    ids = torch.from_numpy(dice.permutation(np.unique(drawn, axis=0)))
    train, valid = Facts(ids[facts // 10 :]), Facts(ids[: facts // 10])
    if weighted:
        train = replace(train, weight=torch.from_numpy(dice.uniform(0.5, 2, len(train)).astype(np.float32)))
    if some_false:
        train = replace(train, value=torch.from_numpy(dice.random(len(train)) < 0.8))
    return EpisodicGraph(
        entities=Vocabulary("entity", tuple(f"e{i:05}" for i in range(entities))),
        predicates=Vocabulary("predicate", tuple(f"p{i:05}" for i in range(predicates))),
        times=TimeAxis("ordinal", 0, times),
        splits={"train": train, "valid": valid},
        name="random",
    )


# --- training ---


def start_run(
    graph: EpisodicGraph,
    *,
    model: str,
    form: str = "episodic",
    dim: int,
    predicate_dim: int | None = None,
    time_dim: int | None = None,
    recipe: str = "paper",
    options: Mapping[str, Any],
    seed: int = 1,
    dtype: str = "float64",
) -> TrainingRun:
    """Return a training run that has not started; `recipe` is taken as it suits the model and changed by `options`."""
    others = dict(options)
    reciprocal = others.pop("reciprocal", recipe == "modern")
    levels = others.pop("levels", (1, 5, 25) if recipe == "modern" else (1,))
    chosen = replace(parse_recipe(recipe).for_model(model), **others)
    config = ModelConfig(
        model=model,
        dim=dim,
        predicate_dim=predicate_dim,
        time_dim=time_dim,
        **structure(form),
        reciprocal=reciprocal,
        time_levels=(1,) if form == "semantic" else levels,
        dtype=dtype,
    )
    return TrainingRun(graph, config, recipe=chosen, seed=seed)


def structure(form: str) -> dict[str, Any]:
    """Return the options of a form of version 0.1: episodic, semantic or both."""
    return {"static": True} if form == "both" else {"form": form}


def finish_run(run: TrainingRun) -> dict[str, Any]:
    """Train to the end; return the last training loss, the last validation MRR and the checksums of the weights."""
    for _ in run:
        pass
    model, _ = run.result()
    last = run.history[-1]
    return {"loss": last.loss, "valid_mrr": last.mrr, "weights": checksums(model)}


def train(graph: EpisodicGraph, **settings: Any) -> dict[str, Any]:
    """Train from the start to the end: `finish_run(start_run(…))`."""
    return finish_run(start_run(graph, **settings))


def resume_checkpoint(path: Path, graph: EpisodicGraph, **settings: Any) -> dict[str, Any]:
    """Continue an interrupted run with the same settings to its end; return what `finish_run` does."""
    run = start_run(graph, **settings)
    run.load_checkpoint_(path)
    return finish_run(run)


def write_checkpoint(path: Path, graph: EpisodicGraph, *, epochs: int, **settings: Any) -> None:
    """Train until the first batch after so many epochs, and write the checkpoint of the unfinished run."""
    run = start_run(graph, **settings)
    for record in run:
        if not isinstance(record, Epoch) and record.epoch == epochs:
            break
    run.save_checkpoint(path)


def checksums(model: TensorModel) -> dict[str, float]:
    """Return, for each parameter, the mean of its absolute weights, each times a factor from 1 to 2 by its place."""
    sums = {}
    for name, value in sorted(model.state_dict().items()):
        weights = value.detach().double().abs().flatten()
        sums[name] = float((weights * torch.linspace(1, 2, len(weights), dtype=torch.float64)).mean())
    return sums


# --- ranks ---


def rank_checksums(
    model: str,
    form: str,
    dim: int,
    graph: EpisodicGraph,
    **built: Any,
) -> dict[str, dict[str, list[float]]]:
    """Return [mean rank, mean reciprocal rank] of the training facts by slot, filtered and raw; weights are random."""
    built = {"time_levels" if name == "levels" else name: value for name, value in built.items()}
    config = ModelConfig(model=model, dim=dim, **structure(form), dtype="float64", **built)
    scorer = build_model(config, graph.sizes)
    dice = np.random.default_rng(1)
    with torch.no_grad():
        for _, parameter in sorted(scorer.named_parameters()):
            parameter.copy_(torch.from_numpy(dice.standard_normal(tuple(parameter.shape))))
    known, facts = FactIndex(graph.facts, graph.sizes), graph.split("train")
    slots = "spo" if form == "semantic" else "spot"
    found: dict[str, dict[str, list[float]]] = {}
    for slot in slots:
        rankings = rank(scorer, facts, slot, known=known)
        ranks = {setting: rankings[setting].ranks() for setting in ("filtered", "raw")}
        found[slot] = {name: [float(each.mean()), float((1 / each).mean())] for name, each in ranks.items()}
    return found


# --- memories ---


def learn_memory(graph: EpisodicGraph, **settings: Any) -> Memory:
    """Train to the end and return the memory; settings as of `start_run`."""
    run = start_run(graph, **settings)
    for _ in run:
        pass
    return Memory.from_run(run)


def project_memory(memory: Memory, as_of: str) -> Memory:
    """Return the semantic memory of what held as of a time."""
    return memory.project(as_of)


def save_memory(memory: Memory, path: Path) -> None:
    """Write a memory to a folder."""
    memory.save(path, overwrite=True)


def load_memory(path: Path) -> Memory:
    """Read a memory from a folder."""
    return load(path)


def facts_of(memory: Memory, split: str, count: int) -> list[dict[str, str]]:
    """Return the first facts of a split by label: subject, predicate, object and time."""
    return memory.graph.table(memory.graph.split(split)[:count]).to_dicts()


def recall(memory: Memory, top: int, **given: str) -> list[dict[str, Any]]:
    """Return the answers to the slot that is not given: label, score, probability and status."""
    return memory.recall(**given, top=top).to_dicts()


def know(memory: Memory, as_of: str | None, top: int, **given: str) -> list[dict[str, Any]]:
    """Return what held as of a time: labels, score, probability and status."""
    return memory.know(**given, as_of=as_of, top=top).to_dicts()


def evaluate(memory: Memory, split: str) -> dict[str, Any]:
    """Return all figures of an evaluation that version 0.1 gave, as JSON would give them back."""
    found = json.loads(json.dumps(memory.evaluate(split).to_dict()))
    for reports in found["calibration"].values():
        for report in reports.values():
            del report["likely_error"]
    return {name: found[name] for name in ("split", "facts", "filtered", "raw", "calibration")}


# --- command line ---


def commands() -> Iterator[tuple[str, ...]]:
    """Yield the words of every command and group, the program itself first: (), ("train",), ("data", "list") …"""

    def below(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield words
        for name, each in getattr(command, "commands", {}).items():
            yield from below(each, (*words, name))

    yield from below(typer.main.get_command(app), ())


def run_command(*words: object, data: Path | None = None) -> tuple[int, str]:
    """Run a command in this process; return its exit code and standard output without colours.

    `data` is the folder below which files of published datasets are looked for.
    """
    environment = {"COLUMNS": str(HELP_COLUMNS), "NO_COLOR": "1", "TERM": "dumb"}
    if data is not None:
        environment["RECOLLECT_DATA"] = str(data)
    result = CliRunner().invoke(app, list(map(str, words)), input=QUESTION, env=environment, prog_name="recollect")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, re.sub("\x1b\\[[0-9;]*m", "", result.stdout)


def json_commands(folder: Path, fixtures: Path) -> dict[str, list[object]]:
    """Return the words of one call of every command with --json, by command; write their inputs to `folder`.

    Training comes first: it compiles what the search, whose time is limited, then finds compiled.
    """
    table, raw, out = folder / "facts.csv", folder / "events.tab", folder / "out"
    facts = [f"e{i % 7},r{i % 3},e{i * i % 5},{2000 + i % 12}" for i in range(400)]
    table.write_text("\n".join(["subject,predicate,object,time", *facts]) + "\n", encoding="utf-8")
    header = ["Event ID", "Event Date", *["x"] * 18]
    event = ["1", "2018-10-04", "A (USA)", "Social", "USA", "Visit", "042", "1.9", "B (RUS)", "Social", "RUS"]
    rows = [header, event + ["x"] * 9, ["2", "2018-10-05", *event[2:], *["x"] * 9], ["3"] * 20]
    raw.write_text("\n".join("\t".join(row) for row in rows) + "\n", encoding="utf-8")
    new = folder / "events" / "new.csv"
    new.parent.mkdir()
    new.write_text("subject,predicate,object,time\nnew,r1,e1,2003\nnew,r1,e2,2012\n", encoding="utf-8")
    (folder / "yago11k").mkdir()
    listed = {each["name"]: each for each in json.loads(run_command("data", "list", "--json")[1])}
    for split, count in listed["yago11k"]["rows"].items():
        (folder / "yago11k" / f"{split}.txt").write_text("x\n" * count, encoding="utf-8")
    memory = fixtures / "memory-0.1"
    small = ["--model", "distmult", "--dim", 3, "--epochs", 1]
    asked = ["--subject", "Bran Nethova", "--predicate", "Ambassador of", "--time", "2001-04"]
    words: dict[str, list[object]] = {
        "train": [table, *small, "--out", out / "a.memory"],
        "show": [memory],
        "ask": [memory],
        "evaluate": [memory],
        "search": [table, *small, "--set", "validate_every=1", "--budget", 0.08, "--out", out / "search"],
        "baseline": [table],
        "plan": ["--entities", 5000, "--times", 30, "--facts", 90_000, "--memory", 16],
        "recall": [memory, *asked],
        "know": [memory],
        "when": [memory, *asked[:4], "--object", "Kriolstan"],
        "forecast": [out / "h.memory"],
        "project": [memory, "--out", out / "b.memory"],
        "remember": [out / "h.memory", new],
        "forget": [out / "h.memory", "--subject", "e1", "--time", "2003", "--yes"],
        "journal": [out / "h.memory"],
        "consolidate": [out / "h.memory"],
        "watch": [out / "h.memory", folder / "events", "--once"],
        "models": [],
        "recipes list": [],
        "recipes show": ["paper"],
        "data list": [],
        "data show": [table],
        "data fetch": ["yago11k"],
        "data build": [raw, "--out", out / "built"],
        "data export": [table, "--out", out / "exported"],
        "data formats": [],
    }
    out.mkdir()
    code, _ = run_command("train", table, "--model", "history", "--out", out / "h.memory")
    assert code == 0
    return {name: [*name.split(), *more, "--json"] for name, more in words.items()}
