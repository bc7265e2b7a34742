"""What filtered evaluation costs beside the bare matrix products and beside a loop over queries.

    python benchmarks/evaluation.py [--model complex] [--dim 100] [--json]

Ranks the test facts' subjects and objects among all entities. All contenders run in turn, several times;
the figures are medians and their ratios, which a noisy machine disturbs less than seconds. The data are
ICEWS14 where RECOLLECT_DATA has it, else random facts of the same sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import torch

from recollect import Facts, read
from recollect.evaluation.ranking import BYTES, rank
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import SLOTS
from recollect.models.tensor_model import MODELS, WORK_BYTES, TensorModel

SIZES = {"entity": 7128, "predicate": 230, "time": 365}
LOOPED = 300  # queries that the loop ranks; its time is scaled up


def graph_facts() -> tuple[str, dict[str, int], Facts, Facts]:
    """Name, sizes, known facts and the test facts."""
    folder = Path(os.environ.get("RECOLLECT_DATA", "")) / "icews14"
    if os.environ.get("RECOLLECT_DATA") and folder.is_dir():
        graph = read(folder)
        return graph.name, graph.sizes, graph.facts, graph.split("test")
    g = torch.Generator().manual_seed(0)
    kinds = ("entity", "predicate", "entity", "time")
    known = Facts.from_columns(*(torch.randint(SIZES[kind], (90730,), generator=g) for kind in kinds))
    return "random facts of ICEWS14's sizes", SIZES, known, known[:8963]


def bare_products(query: torch.Tensor, table: torch.Tensor) -> None:
    """Two products of (facts × width) with (width × entities), in cache-sized pieces into one buffer."""
    rows = BYTES // (16 * len(table))
    buffer = torch.empty(rows, len(table))
    for _ in "so":
        for piece in query.split(rows):
            torch.mm(piece, table.T, out=buffer[: len(piece)])


def ours(model: TensorModel, facts: Facts, known: FactIndex) -> list[float]:
    return [rank(model, facts, slot, known=known)["filtered"].ranks().reciprocal().mean().item() for slot in "so"]


@torch.no_grad()
def loop(model: TensorModel, facts: Facts, known: Facts) -> list[float]:
    """The straightforward way: a dictionary of answers, a Python loop over queries and their filters."""
    found = []
    for slot in "so":
        at = SLOTS.index(slot)
        answers = defaultdict(set)
        for row in known.ids.tolist():
            answers[tuple(row[:at] + row[at + 1 :])].add(row[at])
        started = time.perf_counter()
        total = 0.0
        for i in range(LOOPED):
            fact = facts[i : i + 1]
            row = fact.ids[0].tolist()
            scores = model.score_against(fact, slot)[0]
            true = scores[row[at]].item()
            for other in answers[tuple(row[:at] + row[at + 1 :])]:
                if other != row[at]:
                    scores[other] = -torch.inf
            greater = (scores > true).sum().item()
            ties = (scores == true).sum().item() - 1
            total += 1 / (1 + greater + ties / 2)
        found.append((time.perf_counter() - started) * len(facts) / LOOPED)
    return found


def peak_bytes(model: TensorModel, facts: Facts, known: FactIndex) -> int | None:
    """How far the resident memory rises during an evaluation; None where the system cannot tell."""
    ours(model, facts, known)  # builds the indexes, which all evaluations share, and loads the libraries' own code
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
        before = _status("VmRSS")
        ours(model, facts, known)
        return _status("VmHWM") - before
    except OSError:
        return None


def _status(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(key)


def peak_in_a_process_of_its_own() -> int | None:
    """The same, where freed memory goes back to the system at once, so that only what is held is counted."""
    command = [sys.executable, __file__, *sys.argv[1:], "--peak"]
    told = subprocess.run(
        command, env=os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}, capture_output=True, text=True, check=True
    )
    found = json.loads(told.stdout)
    return None if found is None else int(found)


def seconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="complex", choices=MODELS)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--peak", action="store_true", help="only the bytes by which memory rises")
    options = parser.parse_args()
    name, sizes, known_facts, test = graph_facts()
    model = MODELS[options.model](sizes, options.dim, generator=torch.Generator().manual_seed(0))
    known = FactIndex(known_facts, sizes)
    query, table = (torch.randn(rows, model.entity[0].numel()) for rows in (len(test), sizes["entity"]))
    if options.peak:
        print(json.dumps(peak_bytes(model, test, known)))
        return
    memory = peak_in_a_process_of_its_own()
    ours(model, test, known)
    times: dict[str, list[float]] = {"bare": [], "ours": [], "loop": []}
    for _ in range(options.repeats):
        times["bare"].append(seconds(lambda: bare_products(query, table)))
        times["ours"].append(seconds(lambda: ours(model, test, known)))
        times["loop"].append(sum(loop(model, test, known_facts)))
    median = {who: statistics.median(values) for who, values in times.items()}
    result = {
        "data": name,
        "model": options.model,
        "dim": options.dim,
        "queries": 2 * len(test),
        "bare_s": median["bare"],
        "ours_s": median["ours"],
        "loop_s": median["loop"],
        "ours_over_bare": median["ours"] / median["bare"],
        "loop_over_ours": median["loop"] / median["ours"],
        "spread": {who: [min(values), max(values)] for who, values in times.items()},
        "peak_bytes": memory,
        "budget_bytes": BYTES + WORK_BYTES,
    }
    if options.json:
        print(json.dumps(result))
        return
    print(f"{name}: {result['queries']:,} queries, {options.model} dim {options.dim}, medians of {options.repeats}")
    for who, about in (
        ("bare", "matrix products"),
        ("ours", "filtered dims"),
        ("loop", f"loop (of {LOOPED} queries)"),
    ):
        low, high = result["spread"][who]
        print(f"  {about:24} {median[who]:8.3f} s   ({low:.3f} to {high:.3f})")
    print(f"  ours / products {result['ours_over_bare']:.2f}, loop / ours {result['loop_over_ours']:.1f}")
    if memory is not None:
        print(f"  memory rises by {memory / 2**20:.0f} MiB; budget {result['budget_bytes'] / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
