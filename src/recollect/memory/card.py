"""Write the card of a memory: what it is, what it was learned from, how well it recalls, in Markdown.

Its head is the YAML that model hubs read. Every figure is of an evaluation that is made for the card, or of the memory
itself; what is not known, such as the licence of one's own data, is said to be unknown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import recollect
from recollect.errors import UserError
from recollect.evaluation.metrics import SINGLE_STEP, Evaluation
from recollect.evaluation.reliability import observed_by_tenth
from recollect.io.datasets import DATASETS
from recollect.io.plots import check_figure, reliability_diagram

if TYPE_CHECKING:
    from recollect.memory.snapshot import Snapshot

METRICS = {"mrr": "MRR", "hits@1": "Hits@1", "hits@3": "Hits@3", "hits@10": "Hits@10"}


def card(
    snapshot: Snapshot, *, split: str | None = None, licence: str | None = None, figure: str | Path | None = None
) -> str:
    """Return the card; `split` is evaluated, by default test or valid if there is one.

    `licence` is that of the data, where it is not one of the published datasets; a reliability diagram is drawn to the
    path `figure`, and the card shows it.
    """
    if figure is not None:
        check_figure(Path(figure))
    counts = snapshot.graph.counts
    chosen = split or next((name for name in ("test", "valid") if counts.get(name)), None)
    if split is not None and not counts.get(split):
        raise UserError(f"{snapshot.graph.name} has no {split} facts; choose one of {', '.join(counts)}")
    found = None if chosen is None else snapshot.evaluate(chosen)
    if figure is not None and found is not None:
        reliability_diagram({slot: each["after"] for slot, each in found.calibration.items()}, Path(figure))
    parts = [_head(snapshot, found), *_description(snapshot), *_data(snapshot, licence), *_evaluation(found, figure)]
    return "\n\n".join([*parts, _use()]) + "\n"


def _head(snapshot: Snapshot, found: Evaluation | None) -> str:
    """Return the YAML between two lines of dashes; texts are JSON strings, which YAML reads."""
    lines = ["library_name: recollect", "tags:", *(f"- {tag}" for tag in ("knowledge-graph", "temporal", "recollect"))]
    if found is not None:
        name = json.dumps(snapshot.graph.name, ensure_ascii=False)
        lines += ["model-index:", f"- name: {name}", "  results:", "  - task: {type: graph-ml}"]
        lines += [f"    dataset: {{type: {name}, name: {name}, split: {found.split}}}", "    metrics:"]
        for slot, figures in found.filtered.items():
            lines.append(f"    - {{type: mrr, name: filtered {slot} MRR, value: {figures['mrr']:.4f}}}")
    return "\n".join(["---", *lines, "---"])


def _description(snapshot: Snapshot) -> Iterator[str]:
    graph, about = snapshot.graph, snapshot.about
    yield f"# {graph.name}"
    yield (
        f"A memory of facts *(subject, predicate, object, time)* that answers by {snapshot.scorer}. Stored facts are "
        "answered exactly; predicted ones have a calibrated probability."
    )
    times = graph.times
    rows = [
        ("entities", f"{len(graph.entities):,}"),
        ("predicates", f"{len(graph.predicates):,}"),
        ("times", f"{len(times):,} ({times.grain}, {times.label(0)} to {times.label(len(times) - 1)})"),
        ("parameters", f"{sum(weight.numel() for model in snapshot.scorer.models for weight in model.parameters()):,}"),
        ("seed", str(about.get("seed", "unknown"))),
        ("made with", ", ".join(f"{name} {version}" for name, version in _versions(about).items())),
    ]
    yield _table(("", ""), rows)


def _versions(about: Mapping[str, Any]) -> dict[str, str]:
    return dict(about.get("versions") or {"recollect": recollect.__version__})


def _data(snapshot: Snapshot, licence: str | None) -> Iterator[str]:
    graph = snapshot.graph
    published = DATASETS.get(graph.name.partition("/")[0])
    yield "## Data"
    counts = ", ".join(f"{count:,} {name}" for name, count in graph.counts.items())
    rows = [
        ("name", graph.name + (f": {published.about}" if published else "")),
        ("source", (published.source if published else "") or "not recorded"),
        ("licence", licence or (published.licence if published else "") or "not recorded: ask who made the memory"),
        ("facts", f"{counts}; only train facts are stored"),
        ("SHA-256 of the graph", f"`{graph.fingerprint}`"),
    ]
    yield _table(("", ""), rows)
    yield "The memory contains its facts. Who shares it shares them, so the licence of the data holds for it too."


def _evaluation(found: Evaluation | None, figure: str | Path | None) -> Iterator[str]:
    yield "## Evaluation"
    if found is None:
        yield "Not evaluated: all facts were learned, and none was withheld."
        return
    protocol = (
        "one step ahead, with all facts before the asked time stored"
        if found.protocol == SINGLE_STEP
        else ("with the train facts stored")
    )
    yield (
        f"{found.facts:,} {found.split} facts, {protocol}. Every candidate is ranked; other true facts of all splits "
        "are left out of the ranking (filtered), and equal scores share their mean rank (realistic ties)."
    )
    shown = [(slot, *(f"{figures[name]:.3f}" for name in METRICS)) for slot, figures in found.filtered.items()]
    raw = [f"{figures['mrr']:.3f}" for figures in found.raw.values()]
    yield _table(("slot", *METRICS.values(), "raw MRR"), [(*row, mrr) for row, mrr in zip(shown, raw, strict=True)])
    yield from _reliability(found)
    if figure is not None:
        yield f"![Of answers said to be true with a probability, the share that was]({Path(figure).name})"


def _reliability(found: Evaluation) -> Iterator[str]:
    """Yield a table with the share of true ones among predicted answers, by tenth of their probability."""
    rows = []
    for slot, reports in found.calibration.items():
        observed = observed_by_tenth(reports["after"])
        shares = (f"{observed[tenth]:.0%}" if tenth in observed else "" for tenth in range(10))
        rows.append((slot, f"{reports['after']['likely_error']:.3f}", *shares))
    if rows:
        yield "The share of predicted answers that was true, by the tenth in which their probability was."
        yield _table(("slot", "error", *(f"{10 * tenth}-{10 * tenth + 9} %" for tenth in range(10))), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; what would end a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines
    )


def _use() -> str:
    return "\n".join(
        [
            "## Use",
            "",
            "```python",
            "import recollect",
            "",
            'memory = recollect.load("DIR")  # the folder with memory.json; nothing in it is executed',
            "memory.know()",
            "```",
        ]
    )
