"""SIGKILL at every system call that changes files, of commands that train, save, export, build, search and remember.

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
from importlib import import_module
from pathlib import Path
from typing import Any

from torture.cases import CASES, Case, check
from torture.system_calls import be_traced, run_traced


def in_child(function: Callable[[Path], None], folder: Path, moment: int = 0) -> str | None:
    """Run a function in a forked process; return None if it ended well, "killed", or the text of its error.

    With a `moment`, it is killed before that system call that changes files, counted from 1.
    """
    output = folder.with_name("output")
    child = os.fork()
    if child == 0:
        handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        code = 1
        try:
            if moment:
                be_traced()
            function(folder)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    status = run_traced(child, moment) if moment else os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return "killed"
    return None if status == 0 else output.read_text(errors="replace")[-3000:]


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
