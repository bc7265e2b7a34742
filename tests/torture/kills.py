"""SIGKILL at every call that changes the disk, of commands that train, save, export, build and search.

`python -m torture.kills EVERY CASE …` runs each case again and again, each time killed one call later (or EVERY calls),
until it ends by itself. After each kill a process of its own checks that nothing is lost and nothing blocks. The result
is printed as JSON. Processes are forked from this one, which has imported everything and started no thread.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from recollect import Memory, ModelConfig, Recipe, dataset, load, read, split_randomly, write_graph
from recollect.cli.main import main
from recollect.training.search import FOUND, STUDY, Search

# functions that change the disk, by the module or the class they belong to
CHANGES = {
    "posix": {
        "close",
        "fsync",
        "ftruncate",
        "mkdir",
        "open",
        "remove",
        "rename",
        "replace",
        "rmdir",
        "unlink",
        "write",
    },
    "io": {"open"},
    "fcntl": {"flock"},
    "_io": {"close", "flush", "truncate", "write"},
    "sqlite3": {"close", "commit", "execute", "executemany", "executescript", "rollback"},
    "polars": {"sink_parquet", "collect"},
    "safetensors": {"serialize_file"},
}
CSV = "subject,predicate,object,time\n" + "".join(
    f"e{i % 7},r{i % 3},e{i * i % 5},{2000 + i % 12}\n" for i in range(90)
)
TRAIN = ["--model", "distmult", "--dim", "2", "--recipe", "paper", "--epochs", "2", "--set", "validate_every=1"]


def owner_of(function: Any) -> str:
    """Return the top-level module of a compiled function or of the class it is a method of."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, ModuleType):
        return owner.__name__.partition(".")[0]
    name = type(owner).__module__ if owner is not None else function.__module__ or ""
    return name.partition(".")[0]


def kill_at(moment: int) -> Callable[[Any, str, Any], None]:
    """Return a profile function that kills this process before its `moment`-th call that changes the disk."""
    left = moment

    def profile(_frame: Any, event: str, function: Any) -> None:
        nonlocal left
        if event == "c_call" and function.__name__ in CHANGES.get(owner_of(function), ()):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return profile


def in_child(function: Callable[[Path], None], folder: Path, moment: int = 0) -> str | None:
    """Run a function in a forked process; return None if it ended well, "killed", or the text of its error."""
    output = folder.with_name("output")
    child = os.fork()
    if child == 0:
        handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        code = 1
        try:
            if moment:
                sys.setprofile(kill_at(moment))
            function(folder)
            code = 0
        except BaseException:
            sys.setprofile(None)
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return "killed"
    return None if status == 0 else output.read_text(errors="replace")[-3000:]


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


def stored_facts(folder: Path, subject: str) -> set[tuple[str, ...]]:
    graph = load(folder / "out" / "m").graph
    return {row for row in graph.table(graph.split("train")).rows() if row[0] == subject}


def verify_changes(act: Callable[[Path], None], *, has_events: bool = True) -> Callable[[Path], None]:
    def verify(folder: Path) -> None:
        """Acknowledged changes are there, no change is there in part, and the next one is made once."""
        is_acknowledged = (folder / "acknowledged").exists()
        if has_events:
            check(len(stored_facts(folder, "kept")) == 1, "an acknowledged fact is lost")
        new, left = stored_facts(folder, "new"), stored_facts(folder, "e1")
        check(new in (set(), set(NEW)), f"half of a batch: {new}")
        check(left in (set(), OF_E1), f"half is forgotten: {left}")
        if is_acknowledged:
            check(left == set() if act is forget else new == set(NEW), "an acknowledged change is lost")
        act(folder)
        check(
            stored_facts(folder, "e1") == set() if act is forget else stored_facts(folder, "new") == set(NEW), "after"
        )
        changes = load(folder / "out" / "m").changes()
        check(changes.filter(subject="new").height in (0, 2), "a change was made twice")
        check(changes["event"].is_sorted(), "events are out of order")
        if act is consolidate:
            files = [path for path in (folder / "out").rglob("*") if path.is_file()]
            found = [path.name for path in files if ERASED.encode() in path.read_bytes()]
            check(not found, f"traces of what was erased: {found}")
        extra = set(names(folder / "out")) - {"m", "m.journal", "m.journal-wal", "m.journal-shm"}
        check(not extra, f"left behind: {extra}")

    return verify


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
    "search": Case(lambda folder: None, search, verify_search),
    "search again": Case(prepare_search, search, verify_search),
}


def import_what_is_used(case: Case, place: Path) -> None:
    """Import here what a child imports, so that later children need not."""

    def list_modules(folder: Path) -> None:
        case.prepare(folder)
        case.act(folder)
        case.verify(folder)
        place.with_name("modules").write_text("\n".join(sys.modules))

    place.mkdir()
    error = in_child(list_modules, place)
    check(error is None, f"without a kill: {error}")
    for name in place.with_name("modules").read_text().split("\n"):
        if name not in sys.modules:
            with suppress(ImportError):  # made at run time
                import_module(name)


def run_case(case: Case, place: Path, every: int) -> dict[str, Any]:
    """Kill a case at every `every`-th call, beginning with the first; return the number of kills and all errors."""
    import_what_is_used(case, place / "once")
    (place / "template").mkdir()
    check(in_child(case.prepare, place / "template") is None, "prepare")
    kills, errors, moment, outcome = 0, [], 1, "killed"
    while outcome == "killed":
        folder = place / "run"
        shutil.copytree(place / "template", folder)
        outcome = in_child(case.act, folder, moment)
        kills += outcome == "killed"
        error = in_child(case.verify, folder) if outcome in ("killed", None) else outcome
        if error is not None:
            errors.append((moment, error))
        shutil.rmtree(folder)
        moment += every
    return {"kills": kills, "errors": errors}


def run(every: int, cases: list[str]) -> dict[str, Any]:
    results = {}
    for name in cases or list(CASES):
        with tempfile.TemporaryDirectory() as place:
            results[name] = run_case(CASES[name], Path(place), every)
    return results


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]), sys.argv[2:])))  # noqa: T201
