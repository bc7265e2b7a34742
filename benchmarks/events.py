"""Read raw events into a country-day graph: rows per second and peak memory, next to pandas on a part of the files.

The rows are GDELT's: actors, events and places of the real sample, recombined, with new ids and dates. One in ten
thousand is cut short, one in a thousand repeats an event.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from recollect import UserError

PART_ROWS = 1_000_000  # rows per generated file
FIRST_ID = 10**9
TURNS = 5
SAMPLE = "gdelt-raw/20191024143000.export.CSV"
PANDAS: dict[str, dict[str, Any]] = {
    "pandas": {"dtype": {28: str}},  # codes keep their leading zeros, so the facts are the same
    "pandas, types guessed": {},  # codes lose them
    "pandas, all text": {"dtype": str},
}
COLUMNS = [0, 1, 7, 17, 28]  # event id, day, actors' countries, event code


def write_part(sample: Path, path: Path, first: int, rows: int) -> None:
    """Write rows of GDELT's format: each takes actors and event from three rows of the sample, on a day of 2012."""
    dice = random.Random(first)
    cells = [line.split("\t") for line in sample.read_text(encoding="utf-8").split("\n") if line]
    actors1, actors2, events = (["\t".join(row[a:b]) for row in cells] for a, b in ((5, 15), (15, 25), (25, None)))
    days = [date(2012, 1, 1) + timedelta(days=i) for i in range(366)]
    dates = [f"{d:%Y%m%d}\t{d:%Y%m}\t{d:%Y}\t{d.year + d.timetuple().tm_yday / 366:.4f}" for d in days]
    with path.open("w", encoding="utf-8") as file:
        for event in range(first, first + rows):
            event_id = event
            if event % 1000 == 999 and event > first + 5000:
                event_id -= dice.randrange(1, 5000)
            parts = [dice.choice(column) for column in (dates, actors1, actors2, events)]
            row = "\t".join([str(event_id), *parts])
            if event % 10_000 == 5_000:
                row = row[: len(row) // 2]
            file.write(row + "\n")


def read_ours(pattern: str) -> dict[str, Any]:
    """Return figures of building the graph in this process."""
    from recollect import read_events

    with tempfile.TemporaryDirectory() as folder:  # not timed: imports and what is loaded at first use
        few = Path(folder) / "few.CSV"
        few.write_bytes(_first_rows(pattern))
        read_events([few])
    start = time.perf_counter()
    graph = read_events([pattern])
    seconds = time.perf_counter() - start
    rows = sum(graph.rows.values())
    assert rows == len(graph.facts) + graph.duplicates + sum(graph.dropped.values())
    return {
        "rows": rows,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "facts": len(graph.facts),
        "duplicates": graph.duplicates,
        "dropped": dict(graph.dropped),
        "sizes": graph.sizes,
        "fingerprint": graph.fingerprint,
    }


def _first_rows(pattern: str) -> bytes:
    first_file = min(Path(pattern).parent.glob(Path(pattern).name))
    with first_file.open("rb") as file:
        return b"".join(file.readline() for _ in range(1000))


def read_pandas(path: str, name: str) -> dict[str, Any]:
    """Return figures of plain pandas: read the needed columns and group by fact."""
    import pandas as pd

    options: dict[str, Any] = {"sep": "\t", "header": None, "usecols": COLUMNS, "names": range(61), **PANDAS[name]}
    read = partial(pd.read_csv, path, on_bad_lines="skip", **options)
    read(nrows=1000).groupby([7, 28, 17, 1]).size()  # not timed
    start = time.perf_counter()
    frame = read()
    facts = frame.groupby([7, 28, 17, 1]).size()
    return {"rows": len(frame), "seconds": time.perf_counter() - start, "facts": len(facts)}


def measure(rows: int) -> dict[str, Any]:
    """Generate rows and read them with all contenders in turn, each in a process of its own; return medians."""
    sample = Path(os.environ.get("RECOLLECT_DATA", ".")) / SAMPLE
    if not sample.is_file():
        raise UserError(f"{sample}: the real sample is not here; set RECOLLECT_DATA to a folder that holds it")
    with tempfile.TemporaryDirectory() as folder:
        parts = _write_parts(sample, Path(folder), rows)
        size = sum(path.stat().st_size for path in parts)
        os.sync()  # so that the writing does not go on while reading is measured
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in ("ours", *PANDAS)}
        for turn in range(TURNS + 1):
            results = {"ours": _run_alone("ours", f"{folder}/*.export.CSV")}
            results |= {name: _run_alone(name, str(parts[0])) for name in PANDAS}
            if turn:  # the first turn, which compiles and fills the page cache, does not count
                for name, result in results.items():
                    runs[name].append(result)
    if len({run["fingerprint"] for run in runs["ours"]}) != 1:
        raise UserError("the same files gave different graphs")
    return _report(runs, size)


def _write_parts(sample: Path, folder: Path, rows: int) -> list[Path]:
    """Write files of at most PART_ROWS rows in parallel; return their paths."""
    parts = [folder / f"{i:04d}.export.CSV" for i in range(-(-rows // PART_ROWS))]
    with ProcessPoolExecutor() as pool:
        jobs = []
        for i, path in enumerate(parts):
            count = min(PART_ROWS, rows - i * PART_ROWS)
            jobs.append(pool.submit(write_part, sample, path, FIRST_ID + i * PART_ROWS, count))
        for job in jobs:
            job.result()
    return parts


def _run_alone(contender: str, path: str) -> dict[str, Any]:
    """Return the figures of one contender, read in a process of its own, with its peak memory."""
    command = [sys.executable, "-m", "benchmarks.events", contender, path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _report(runs: dict[str, list[dict[str, Any]]], size: int) -> dict[str, Any]:
    rates = {name: [run["rows"] / run["seconds"] for run in results] for name, results in runs.items()}
    medians = {name: statistics.median(values) for name, values in rates.items()}
    first = runs["ours"][0]
    return {
        "bytes": size,
        **{key: first[key] for key in ("rows", "facts", "duplicates", "dropped", "sizes")},
        "rows_per_second": medians,
        "times_pandas": {name: medians["ours"] / medians[name] for name in PANDAS},
        "all_rows_per_second": {name: [round(rate) for rate in values] for name, values in rates.items()},
        "peak_mib": max(run["peak_mib"] for run in runs["ours"]),
    }


def format_report(report: dict[str, Any]) -> str:
    """Return the report as text."""
    size = report["bytes"] / 1e9
    lines = [
        f"{report['rows']:,} rows, {size:.1f} GB -> {report['facts']:,} facts {report['sizes']}",
        f"dropped {report['dropped']}, duplicates {report['duplicates']:,}",
    ]
    for name, rate in report["rows_per_second"].items():
        ratio = f"   ours is {report['times_pandas'][name]:.1f}×" if name in PANDAS else ""
        lines.append(f"{name:22} {rate:12,.0f} rows/s{ratio}")
    lines.append(f"all runs {report['all_rows_per_second']}")
    lines.append(f"peak memory {report['peak_mib']:,.0f} MiB")
    return "\n".join(lines)


def main() -> None:
    """Read the path of the last argument with the contender of the first, and print the figures as JSON."""
    import resource

    contender, path = sys.argv[1:]
    result = read_ours(path) if contender == "ours" else read_pandas(path, contender)
    result["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    main()
