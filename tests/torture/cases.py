"""What is killed: commands that train, save, export, build and search, and changes of a memory."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect import Memory, ModelConfig, Recipe, dataset, load, read, split_randomly, write_graph
from recollect.cli.main import main
from recollect.memory.journal.watching import Watcher
from recollect.memory.timeline import Timeline
from recollect.training.search import FOUND, STUDY, Search

CSV = "subject,predicate,object,time\n" + "".join(
    f"e{i % 7},r{i % 3},e{i * i % 5},{2000 + i % 12}\n" for i in range(90)
)
TRAIN = ["--model", "distmult", "--dim", "2", "--recipe", "paper", "--epochs", "2", "--set", "validate_every=1"]


def command(*words: object) -> None:
    """Run a command of recollect; raise unless it succeeds."""
    sys.argv = ["recollect", *map(str, words)]
    try:
        main()
    except SystemExit as stopped:
        if stopped.code:
            raise RuntimeError(f"exit code {stopped.code}") from stopped


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def check(condition: bool, words: str) -> None:
    if not condition:
        raise AssertionError(words)


@dataclass(frozen=True)
class Case:
    """What is killed: `prepare` fills an empty folder, `act` is killed in a copy of it, `verify` looks at the rest."""

    prepare: Callable[[Path], None]
    act: Callable[[Path], None]
    verify: Callable[[Path], None]


# -- train ------------------------------------------------------------------------------------------------------------


def train(folder: Path, *words: str) -> None:
    command("train", folder / "facts.csv", *TRAIN, "--out", folder / "out" / "m", *words)


def prepare_train(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "facts.csv").write_text(CSV)
    train(folder, "--seed", "1")
    (folder / "out" / "m").rename(folder / "new")


def prepare_train_again(folder: Path) -> None:
    prepare_train(folder)
    train(folder, "--seed", "2")
    shutil.copytree(folder / "out" / "m", folder / "old")


def verify_train(folder: Path) -> None:
    """The old memory is there until the new one is; the run can be continued to the same bits."""
    if (folder / "old").exists():
        fingerprints = {load(folder / name).about["seed"] for name in ("old", "new")}
        check(load(folder / "out" / "m").about["seed"] in fingerprints, "neither old nor new")
    has_checkpoint = (folder / "out" / "m.partial").exists()
    train(folder, "--seed", "1", "--resume" if has_checkpoint else "--force")
    check(contents(folder / "out" / "m") == contents(folder / "new"), "other bits")
    check(names(folder / "out") == ["m"], f"left behind: {names(folder / 'out')}")


# -- save -------------------------------------------------------------------------------------------------------------


def prepare_save(folder: Path) -> None:
    (folder / "out").mkdir()
    graph = split_randomly(dataset("world", countries=4, years=1))
    for name, model in (("old", "distmult"), ("new", "complex")):
        Memory.learn(graph, model=model, dim=2, recipe=Recipe(epochs=1)).save(folder / name)
    shutil.copytree(folder / "old", folder / "out" / "m")


def save(folder: Path) -> None:
    load(folder / "new").save(folder / "out" / "m", overwrite=True)


def verify_save(folder: Path) -> None:
    versions = {name: load(folder / name).model.config for name in ("old", "new")}
    check(load(folder / "out" / "m").model.config in versions.values(), "neither old nor new")
    save(folder)
    check(contents(folder / "out" / "m") == contents(folder / "new"), "other bits")
    check(names(folder / "out") == ["m"], f"left behind: {names(folder / 'out')}")


# -- export and build -------------------------------------------------------------------------------------------------


def export(format: str) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        command("data", "export", folder / "facts.csv", "--format", format, "--out", folder / "out" / "g", "--force")

    return act


def build(folder: Path) -> None:
    command("data", "build", folder / "events.csv", "--out", folder / "out" / "g", "--force")


def event_row(number: int) -> str:
    row = [
        str(number),
        f"2018-10-{number % 28 + 1:02}",
        "A",
        "Social",
        "USA",
        "Visit",
        "042",
        "1.9",
        "B",
        "Social",
        "RUS",
    ]
    return "\t".join(row + ["x"] * 9)


def prepare_graph(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "facts.csv").write_text(CSV)
    header = "\t".join(["Event ID", "Event Date", *["Something"] * 18])
    (folder / "events.csv").write_text("\n".join([header, *map(event_row, range(40))]) + "\n")
    write_graph(dataset("world", countries=4, years=1), folder / "out" / "g", "parquet")
    shutil.copytree(folder / "out" / "g", folder / "old")


def verify_graph(act: Callable[[Path], None]) -> Callable[[Path], None]:
    def verify(folder: Path) -> None:
        """The graph is not hidden: it is the old one or the new one, for Python and for the command line."""
        old = read(folder / "old").fingerprint
        found = read(folder / "out" / "g").fingerprint
        command("data", "show", folder / "out" / "g")
        act(folder)
        new = read(folder / "out" / "g").fingerprint
        check(found in (old, new) and old != new, "neither old nor new")
        check(names(folder / "out") == ["g"], f"left behind: {names(folder / 'out')}")

    return verify


# -- search -----------------------------------------------------------------------------------------------------------


def search(folder: Path) -> dict[str, Any]:
    graph = split_randomly(dataset("world", countries=4, years=1))
    recipe = Recipe(epochs=1, validate_every=1)
    return Search(graph, ModelConfig(model="distmult", dim=2), recipe, folder / "s").run(60.0, runs=1)


def prepare_search(folder: Path) -> None:
    search(folder)


def verify_search(folder: Path) -> None:
    """Finished runs are kept, search.json is whole, and the search continues."""
    before = json.loads((folder / "s" / FOUND).read_text())["trials"] if (folder / "s" / FOUND).exists() else []
    found = search(folder)["trials"]
    check([trial for trial in found if trial["trial"] < len(before)] == before, "a finished run is lost")
    check(len(found) > len(before), "the search did not continue")
    check({STUDY, FOUND} <= set(names(folder / "s")), f"missing: {names(folder / 's')}")
    check(not [name for name in names(folder / "s") if name.startswith(".")], f"left behind: {names(folder / 's')}")


# -- remember, forget, consolidate ------------------------------------------------------------------------------------

NEW = [("new", "r1", "e1", "2003"), ("new", "r2", "e2", "2013")]
OF_E1 = {tuple(line.split(",")) for line in CSV.splitlines() if line.startswith("e1,")}
ERASED = "Rumpelstilzchen"
FILES = {f"{name}.csv": [(name, "r1", "e1", "2003"), (name, "r2", "e2", "2013")] for name in ("one", "two")}


def prepare_changes(folder: Path) -> None:
    """Write a memory with a journal of two events, by which one fact came and one entity went."""
    (folder / "out").mkdir()
    (folder / "facts.csv").write_text(CSV)
    Memory.learn(read(folder / "facts.csv"), model="history").save(folder / "out" / "m")
    memory = load(folder / "out" / "m")
    memory.remember([("kept", "r1", "e1", "2003"), (ERASED, "r1", "e1", "2003")])
    memory.forget(entity=ERASED)


def prepare_first_change(folder: Path) -> None:
    """Write a memory that has no journal yet."""
    prepare_changes(folder)
    for file in (folder / "out").glob("m.journal*"):
        file.unlink()


def remember(folder: Path) -> None:
    load(folder / "out" / "m").remember(NEW)
    (folder / "acknowledged").touch()


def forget(folder: Path) -> None:
    load(folder / "out" / "m").forget(subject="e1")
    (folder / "acknowledged").touch()


def consolidate(folder: Path) -> None:
    memory = load(folder / "out" / "m")
    memory.remember(NEW)
    (folder / "acknowledged").touch()
    memory.consolidate()


def stored_facts(folder: Path) -> dict[str, set[tuple[str, ...]]]:
    """Return the stored facts by subject."""
    graph = load(folder / "out" / "m").graph
    found: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for row in graph.table(graph.split("train")).rows():
        found[row[0]].add(row)
    return found


def verify_changes(act: Callable[[Path], None], *, has_events: bool = True) -> Callable[[Path], None]:
    def verify(folder: Path) -> None:
        """Acknowledged changes are there, no change is there in part, and the next one is made once."""
        is_acknowledged = (folder / "acknowledged").exists()
        found = stored_facts(folder)
        new, left = found["new"], found["e1"]
        check(len(found["kept"]) == has_events, "an acknowledged fact is lost")
        check(new in (set(), set(NEW)), f"half of a batch: {new}")
        check(left in (set(), OF_E1), f"half is forgotten: {left}")
        if is_acknowledged:
            check(left == set() if act is forget else new == set(NEW), "an acknowledged change is lost")
        act(folder)
        found = stored_facts(folder)
        check(not found["e1"] if act is forget else found["new"] == set(NEW), "after")
        changes = load(folder / "out" / "m").changes()
        check(changes.filter(subject="new").height in (0, 2), "a change was made twice")
        check(changes["event"].is_sorted(), "events are out of order")
        if act is consolidate:
            files = [path for path in (folder / "out").rglob("*") if path.is_file()]
            traces = [path.name for path in files if ERASED.encode() in path.read_bytes()]
            check(not traces, f"traces of what was erased: {traces}")
        check_nothing_else(folder)

    return verify


def check_nothing_else(folder: Path) -> None:
    extra = set(names(folder / "out")) - {"m", "m.journal", "m.journal-wal", "m.journal-shm"}
    check(not extra, f"left behind: {extra}")


def prepare_watch(folder: Path) -> None:
    """Write a memory and two files."""
    prepare_changes(folder)
    (folder / "events").mkdir()
    for name, rows in FILES.items():
        lines = [",".join(row) for row in rows]
        file = folder / "events" / name
        file.write_text("\n".join(["subject,predicate,object,time", *lines]) + "\n")
        os.utime(file, (0, 0))  # so long ago that it is complete


def watch(folder: Path) -> None:
    for found in Watcher(Timeline.load(folder / "out" / "m"), folder / "events").look():
        check(found.error is None, f"{found.error}")
        with (folder / "acknowledged").open("a") as file:
            file.write(f"{found.name}\n")


def verify_watch(folder: Path) -> None:
    """A file is there wholly or not at all; what was acknowledged is; each is remembered once."""
    place, found = folder / "acknowledged", stored_facts(folder)
    acknowledged = place.read_text().split() if place.exists() else []
    for name, rows in FILES.items():
        stored = found[rows[0][0]]
        check(stored in (set(), set(rows)), f"half of {name}: {stored}")
        check(bool(stored) or name not in acknowledged, f"{name} is lost")
    watch(folder)
    changes = load(folder / "out" / "m").changes()
    for name, rows in FILES.items():
        check(changes.filter(subject=rows[0][0]).height == len(rows), f"{name} is not remembered once")
    before = len(place.read_text())
    watch(folder)
    check(len(place.read_text()) == before, "a file is remembered again")
    check_nothing_else(folder)


CASES = {
    "train": Case(prepare_train, lambda folder: train(folder, "--seed", "1"), verify_train),
    "train --force": Case(prepare_train_again, lambda folder: train(folder, "--seed", "1", "--force"), verify_train),
    "save": Case(prepare_save, save, verify_save),
    "export parquet": Case(prepare_graph, export("parquet"), verify_graph(export("parquet"))),
    "export tsv": Case(prepare_graph, export("tsv"), verify_graph(export("tsv"))),
    "build": Case(prepare_graph, build, verify_graph(build)),
    "remember": Case(prepare_changes, remember, verify_changes(remember)),
    "remember first": Case(prepare_first_change, remember, verify_changes(remember, has_events=False)),
    "forget": Case(prepare_changes, forget, verify_changes(forget)),
    "consolidate": Case(prepare_changes, consolidate, verify_changes(consolidate)),
    "watch": Case(prepare_watch, watch, verify_watch),
    "search": Case(lambda folder: None, search, verify_search),
    "search again": Case(prepare_search, search, verify_search),
}
