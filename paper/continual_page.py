"""The page of the continual benchmarks."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

from paper.continual import METHODS, SNAPSHOTS, SPLITS
from paper.markdown import markdown_table, number

TEXT = (
    "Static triples in five snapshots, each with new entities and their facts. ComplEx with inverse predicates is "
    "trained on the first snapshot; each of the others is then learned by one of these methods. MRR is filtered, of "
    "subjects and objects, ties count half. *Strict*: all entities known after the last snapshot are candidates, and "
    "all facts of all snapshots and splits are filtered. *Lenient*: the protocol of the published figures (LKGE): the "
    "facts of snapshot *j* are ranked among the entities of snapshots up to *j* only, and filtered by the facts of "
    "these, even by a model that knows more. Means are over test facts, as published, and over test sets. Backward "
    "transfer is the mean change of a test set's strict MRR from the step that learned it to the last one; the "
    "candidates have become more meanwhile. CPU-seconds are those of all steps after the first, without evaluation. "
    "The penalty and the short training's rate were chosen on validation facts; dim and epochs are small, for cost. "
    "The published code reads the test files as validation files, so it stops training by test facts; ours never does."
)


def page(found: dict[str, Any], _folder: Path) -> str:
    """Return the page: tables of every benchmark."""
    return "\n\n".join([TEXT, *(part for board in found["boards"] for part in _board(board))])


def _board(board: dict[str, Any]) -> list[str]:
    settings, counts = board["settings"], board["facts"]
    train = " · ".join(f"{each['train']:,}" for each in counts)
    entities = " · ".join(f"{count:,}" for count in board["entities"])
    order = [method for method in METHODS if method in {row["method"] for row in board["rows"]}]
    rows = {row["method"]: row for row in board["rows"]}
    costs = {method: sum(_steps(rows[method]).values()) for method in order}
    lines = [_line(board, rows[method], costs, rows.get("retraining")) for method in order]
    head = [
        "",
        "strict, facts",
        "strict, sets",
        "first set",
        "other sets",
        "lenient",
        "backward",
        "CPU s",
        "of retraining",
    ]
    parts = [
        f"## {board['data']}\n\n{entities} entities known; {train} training facts. Dim {settings['dim']}, "
        f"{settings['epochs']} epochs, penalty {settings['penalty']}; short training: {settings['short_epochs']} "
        f"epochs, rate {settings['short_rate']}; seed {settings['seed']}.",
        markdown_table(head, lines),
    ]
    if settings["every"] > 1:
        parts.append(f"Ranked: every {settings['every']}th fact of each test set.")
    if board["published"]:
        figures = ", ".join(f"{name} {number(mrr)}" for name, mrr in board["published"])
        parts.append(f"Published by the lenient protocol: {figures}.")
    parts += [_matrix(rows[method]) for method in order]
    return parts


def _steps(row: dict[str, Any]) -> dict[str, float]:
    """Return the CPU-seconds of the steps after the first."""
    return {step: seconds for step, seconds in row["cpu_seconds"].items() if step != "0"}


def _line(
    board: dict[str, Any], row: dict[str, Any], costs: dict[str, float], retraining: dict[str, Any] | None
) -> list[str]:
    last = row["strict"][str(SNAPSHOTS - 1)]
    tests = [each[SPLITS[-1]] for each in board["facts"]]
    share = "–"
    if retraining is not None:
        common = _steps(row).keys() & _steps(retraining).keys()
        ours = sum(_steps(row)[step] for step in common)
        share = f"{ours / sum(_steps(retraining)[step] for step in common):.4f}"
    others = [last[str(j)] for j in range(1, SNAPSHOTS)]
    return [
        METHODS[row["method"]],
        number(weighted(last, tests)),
        number(fmean(last.values())),
        number(last["0"]),
        number(fmean(others)),
        number(weighted(row["lenient"], tests)),
        number(backward_transfer(row["strict"])),
        number(costs[row["method"]], 1),
        share,
    ]


def weighted(mrr: dict[str, float], facts: list[int]) -> float:
    """Return the mean over facts of the MRR of test sets."""
    return sum(mrr[str(j)] * count for j, count in enumerate(facts)) / sum(facts)


def backward_transfer(strict: dict[str, dict[str, float]]) -> float | None:
    """Return the mean change of each earlier test set's MRR from the step that learned it to the last one.

    >>> backward_transfer({"0": {"0": 0.5}, "1": {"0": 0.25, "1": 0.5}})
    -0.25
    """
    last = max(strict, key=int)
    earlier = [step for step in strict if step != last]
    if len(earlier) < int(last):
        return None  # some steps were left out
    return fmean(strict[last][step] - strict[step][step] for step in earlier)


def _matrix(row: dict[str, Any]) -> str:
    head = [f"{METHODS[row['method']]}: strict MRR", *(f"test set {j}" for j in range(SNAPSHOTS)), "CPU s of the step"]
    lines = []
    for step, found in row["strict"].items():
        cells = [number(found.get(str(j))) for j in range(SNAPSHOTS)]
        lines.append([f"after snapshot {step}", *cells, number(row["cpu_seconds"][step], 2)])
    return markdown_table(head, lines)
