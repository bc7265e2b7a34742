"""Print what a graph holds on a screen of 80 × 24 characters: counts, facts over time, the busiest labels, examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from recollect.cli.rendering import console, plain, print_line, print_rows

if TYPE_CHECKING:
    from recollect.graph.facts import EpisodicGraph

EXAMPLES = 3  # facts shown
BAR = 10  # characters of the longest bar


def print_description(graph: EpisodicGraph, about: dict[str, Any], data: str) -> None:
    """Print what `describe` found in a graph, three of its facts and the next command; `data` is how it was named."""
    from recollect.graph.describe import sparkline

    for line in _count_lines(about):
        print_line(line)
    width = max(10, console().width - len(about["from"] + about["to"]) - 2)
    print_line("facts over time")
    print_line(f"{about['from']} {sparkline(about['over_time'], width)} {about['to']}")
    bars = Table.grid(padding=(0, 2), expand=True)
    bars.add_row(_bars("busiest entities", about["busiest_entities"]), _bars("predicates", about["busiest_predicates"]))
    console().print(bars)
    print_rows(_example_rows(graph), as_json=False)
    print_line(f"Next: recollect train {data}")


def _count_lines(about: dict[str, Any]) -> list[str]:
    """Return the counts of a graph in sentences."""
    runs = about["run_length"]
    lines = [
        f"{about['name']}: {about['true']:,} facts, {about['from']} to {about['to']}, "
        f"{about['times']:,} {about['grain']}s",
        f"entities {about['entities']:,}, predicates {about['predicates']:,}, triples {about['triples']:,}, "
        f"seen once {about['seen_once']:.0%}, density {about['density']:.2g}",
        f"runs of consecutive times {about['starts']:,}: {about['ends']:,} ended, {about['current']:,} hold now",
        f"length of a run: median {runs['median']:,}, mean {runs['mean']:,.1f}, longest {runs['longest']:,}",
    ]
    if list(about["facts"]) != ["train"]:
        lines.append("splits: " + ", ".join(f"{name} {count:,}" for name, count in about["facts"].items()))
    left_out = {"equal to another": about["duplicates"], **about["dropped"]}
    read = [f"{count:,} {reason}" for reason, count in left_out.items() if count]
    if read:
        lines.append("merged or left out: " + ", ".join(read))
    return lines


def _bars(title: str, counts: dict[str, int]) -> Table:
    """Return labels with their counts and a bar in proportion."""
    table = Table(title=title, title_justify="left", box=None, show_header=False, padding=(0, 1, 0, 0))
    table.add_column(max_width=16, no_wrap=True, overflow="ellipsis")
    table.add_column(width=BAR)
    table.add_column(justify="right")
    highest = max(counts.values(), default=0) or 1
    for label, count in counts.items():
        table.add_row(plain(label), "█" * max(1, round(BAR * count / highest)), f"{count:,}")
    return table


def _example_rows(graph: EpisodicGraph) -> list[dict[str, Any]]:
    """Return a few facts by label; those that last longer than one time with their first and last."""
    import polars as pl

    from recollect.graph.runs import Runs, has_runs, split_runs

    runs = Runs.concat(split_runs(graph).values())[:EXAMPLES]
    first, table = runs.first, graph.table(runs.first)
    if has_runs(graph):
        ends = zip(table["time"], graph.times.take(runs.last), runs.goes_on.tolist(), strict=True)
        times = [first if first == last else f"{first}..{'' if goes_on else last}" for first, last, goes_on in ends]
        table = table.with_columns(pl.Series("time", times))
    for name, values in (("value", first.value), ("weight", first.weight)):
        if values is not None:
            table = table.with_columns(pl.Series(name, values.tolist()))
    return table.to_dicts()
