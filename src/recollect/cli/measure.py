"""Measure a saved memory, and the baselines that it must beat."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from recollect.cli import options as opt
from recollect.cli.rendering import console, print_json, print_line
from recollect.errors import UserError

HITS = ("hits@1", "hits@3", "hits@10")
SINGLE_STEP = "single step"  # as `evaluation.metrics` names the protocol; that module would import PyTorch
EvaluatedSplit = Annotated[str, typer.Option(help="train, valid or test.")]


def evaluate(
    memory: opt.MemoryDir,
    split: EvaluatedSplit = "test",
    slots: Annotated[str | None, typer.Option(help="Some of s, p, o, t, like `so`; by default all.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Save a reliability diagram here (.png, .svg, .pdf).")] = None,
    as_json: opt.Json = False,
) -> None:
    """Rank withheld facts, and measure the probabilities.

    Later facts than the stored ones are asked for with all before them stored.

    \b
    recollect evaluate world.memory
    recollect evaluate world.memory --split valid
    recollect evaluate world.memory --split test --slots so
    Next: recollect baseline world
    """
    from recollect.memory.memory import load

    if figure is not None:
        from recollect.io.plots import check_figure, reliability_diagram

        check_figure(figure)
    report = load(memory).evaluate(split, slots).to_dict()
    if figure is not None:
        reliability_diagram({slot: each["after"] for slot, each in report["calibration"].items()}, figure)
    if as_json:
        print_json(report)
        return
    shown = console()
    shown.print(metrics_table(report))
    shown.print(reliability_table(report["calibration"]))
    if report["intervals"]:
        found, names = report["intervals"], {"aeiou": "aeIOU", "giou": "gIOU", "tac": "TAC"}
        figures = ", ".join(f"{name} {found[key]:.3f}" for key, name in names.items())
        print_line(f"{found['intervals']:,} intervals, predicted against true: {figures}")


def baseline(
    data: opt.Data,
    split: EvaluatedSplit = "test",
    slots: Annotated[str, typer.Option(help="Some of s, p, o, t, like `so`.")] = "spot",
    columns: opt.Columns = None,
    grain: opt.Grain = None,
    dates: opt.Dates = None,
    inclusive_end: opt.InclusiveEnd = False,
    allow_empty: opt.AllowEmpty = False,
    as_json: opt.Json = False,
) -> None:
    """Rank without a model: by counting, and by history.

    \b
    recollect baseline world
    recollect baseline world --split valid
    recollect baseline world --slots so --json
    Next: recollect train world
    """
    from recollect.evaluation.baselines import DECAYS, Baseline
    from recollect.evaluation.metrics import evaluate as evaluate_scorer
    from recollect.evaluation.ranking import Scorer
    from recollect.graph.facts import parse_slots
    from recollect.graph.run_index import RunIndex, index_of
    from recollect.graph.runs import sampled, stored_in
    from recollect.graph.seeds import seeded
    from recollect.history.history import History

    graph = opt.split_graph(opt.load_graph(data, columns, grain, dates, inclusive_end, allow_empty), None)
    graph.check_split(split)
    facts = sampled(graph, split, seeded(0)).true()
    known = index_of(stored_in(graph, *graph.filter_splits(split)), graph.sizes)
    if isinstance(known, RunIndex):
        known = known.around(facts, parse_slots(slots))
    if not len(facts):
        raise UserError(f"the {split} split of {graph.name} has no facts; choose another --split")
    train = graph.split("train")
    scorers: dict[str, Scorer] = {name: Baseline(train, graph.sizes, decay=decay) for name, decay in DECAYS.items()}
    scorers["history"] = History.fit(stored_in(graph, "train"), graph.sizes)
    rows = []
    for name, scorer in scorers.items():
        filtered = evaluate_scorer(scorer, facts, known=known, slots=parse_slots(slots))["filtered"]
        for slot, figures in filtered.items():
            rows.append({"baseline": name, "slot": slot, **{key: figures[key] for key in ("mrr", *HITS)}})
    if as_json:
        print_json(rows)
        return
    table = Table("baseline", "slot", "MRR", "Hits@1", "@3", "@10", title=f"Filtered, {len(facts):,} {split} facts")
    for row in rows:
        table.add_row(row["baseline"], row["slot"], *(f"{row[key]:.3f}" for key in ("mrr", *HITS)))
    console().print(table)


def metrics_table(report: dict[str, Any]) -> Table:
    """Return the filtered metrics of every slot, and the raw MRR, as a table."""
    table = Table("slot", "MRR", "Hits@1", "@3", "@10", "mean rank", "adjusted", "raw MRR")
    table.title = f"Filtered ranks of {report['facts']:,} {report['split']} facts"
    if report["protocol"] == SINGLE_STEP:
        table.title += ", forecast one step ahead"
    for slot, figures in report["filtered"].items():
        shares = (f"{figures[key]:.3f}" for key in ("mrr", *HITS))
        adjusted = f"{figures['adjusted_mean_rank_index']:.3f}"
        table.add_row(slot, *shares, f"{figures['mean_rank']:.1f}", adjusted, f"{report['raw'][slot]['mrr']:.3f}")
    return table


def reliability_table(calibration: dict[str, Any]) -> Table:
    """Return the calibration errors of every slot, and by tenth of the probability the share that was true."""
    from recollect.evaluation.reliability import observed_by_tenth

    table = Table("slot", "log loss", "error", *(f"{tenth}0s" for tenth in range(1, 10)))
    table.title = "Reliability: of answers said to be true with 10-19 %, 20-29 %, …, the share that was"
    for slot, reports in calibration.items():
        report = reports["after"]
        observed = observed_by_tenth(report)
        shares = (f"{observed[tenth]:.0%}" if tenth in observed else "" for tenth in range(1, 10))
        table.add_row(slot, f"{report['log_loss']:.4f}", f"{report['likely_error']:.3f}", *shares)
    return table
