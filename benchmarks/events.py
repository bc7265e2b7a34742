"""Read raw events into a country-day graph: rows per second and peak memory, next to pandas on a part of the files.

The rows have the shape of GDELT: actors, events and places of the real sample, recombined, with new ids and dates. One
in ten thousand is cut short and one in a thousand repeats an event id.
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
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import psutil

from recollect import UserError

PART_ROWS = 1_000_000  # rows per generated file
FIRST_ID = 10**9
ROUNDS = 5
POLL_SECONDS = 0.2  # between two looks at the memory of a process
SAMPLE = "gdelt-raw/20191024143000.export.CSV"
PANDAS = (
    "pandas",  # the same facts: codes with leading zeros, rows of the right width, every event id once
    "pandas, facts only",  # codes with leading zeros, but broken rows and repeated ids are counted
    "pandas, types guessed",  # the same, and codes lose their leading zeros
)
FACT_COLUMNS = [7, 28, 17, 1]  # subject, predicate, object, date


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
    """Build the graph; return rows, seconds and the row accounting."""
    from recollect import read_events

    with tempfile.TemporaryDirectory() as folder:  # not timed: imports and what is loaded at first use
        few = Path(folder) / "few.CSV"
        few.write_bytes(_first_rows(pattern))
        read_events([few])
    start, cpu_start = time.perf_counter(), time.process_time()
    graph = read_events([pattern])
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
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
    """Count the facts of one file with pandas; return rows and seconds."""
    _count_with_pandas(path, name, nrows=1000)  # not timed
    start, cpu_start = time.perf_counter(), time.process_time()
    rows, facts = _count_with_pandas(path, name)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    return {"rows": rows, "seconds": seconds, "cpu_seconds": cpu_seconds, "facts": facts}


def _count_with_pandas(path: str, name: str, nrows: int | None = None) -> tuple[int, int]:
    """Return the number of rows and of distinct (subject, predicate, object, date)."""
    import pandas as pd

    columns = [0, *sorted(FACT_COLUMNS)]
    if name == "pandas":
        columns.append(60)  # the last one, missing in broken rows
    frame = pd.read_csv(
        path,
        sep="\t",
        header=None,
        usecols=columns,
        names=range(61),
        dtype=None if name == "pandas, types guessed" else {28: str},
        on_bad_lines="skip",
        nrows=nrows,
    )
    rows = len(frame)
    if name == "pandas":
        frame = frame.dropna(subset=columns).drop_duplicates(0)
    return rows, len(frame.groupby(FACT_COLUMNS).size())


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
        for round_number in range(1 + ROUNDS):
            results = {"ours": _run_alone("ours", f"{folder}/*.export.CSV")}
            results |= {name: _run_alone(name, str(parts[0])) for name in PANDAS}
            if round_number:  # the first round fills the page cache and does not count
                for name, result in results.items():
                    runs[name].append(result)
    if len({run["fingerprint"] for run in runs["ours"]}) != 1:
        raise UserError("the same files gave different graphs")
    return _report(runs, size)


def measure_engines(rows: int, master: str) -> list[dict[str, Any]]:
    """Generate rows and read them once with DuckDB and once with Spark, each in a process of its own.

    The time includes the start of the engine; the memory is that of the process and its children, Java among them.
    """
    sample = Path(os.environ.get("RECOLLECT_DATA", ".")) / SAMPLE
    if not sample.is_file():
        raise UserError(f"{sample}: the real sample is not here; set RECOLLECT_DATA to a folder that holds it")
    results = []
    with tempfile.TemporaryDirectory() as folder:
        _write_parts(sample, Path(folder), rows)
        os.sync()
        for engine in ("duckdb", master):
            results.append(_run_engine(engine, f"{folder}/*.export.CSV"))
    if len({(result["fingerprint"], result["dropped"]) for result in results}) != 1:
        raise UserError("the engines gave different graphs")
    return results


def _run_engine(engine: str, pattern: str) -> dict[str, Any]:
    """Return rows per second and peak memory of one engine."""
    command = [sys.executable, "-m", "benchmarks.events", f"engine:{engine}", pattern]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        family, peak = psutil.Process(process.pid), 0
        while process.poll() is None:
            with suppress(psutil.Error):
                peak = max(peak, sum(each.memory_info().rss for each in [family, *family.children(recursive=True)]))
            time.sleep(POLL_SECONDS)
        assert process.stdout is not None
        found: dict[str, Any] = json.loads(process.stdout.read())
    return {"engine": engine, **found, "peak_mib": round(peak / 2**20)}


def read_with_engine(engine: str, pattern: str) -> dict[str, Any]:
    """Build the graph with DuckDB, or with Spark at a master; return seconds, rows per second and the accounting."""
    from recollect import read_events

    options = {"engine": "duckdb"} if engine == "duckdb" else {"engine": "spark", "master": engine}
    start = time.perf_counter()
    graph = read_events([pattern], **options)  # type: ignore[arg-type]
    seconds, rows = time.perf_counter() - start, sum(graph.rows.values())
    return {
        "rows": rows,
        "seconds": round(seconds, 1),
        "rows_per_second": round(rows / seconds),
        "facts": len(graph.facts),
        "duplicates": graph.duplicates,
        "dropped": ", ".join(f"{reason}: {count:,}" for reason, count in graph.dropped.items()),
        "fingerprint": graph.fingerprint,
    }


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
    cpu_rates = {name: [run["rows"] / run["cpu_seconds"] for run in results] for name, results in runs.items()}
    medians = {name: statistics.median(values) for name, values in rates.items()}
    first = runs["ours"][0]
    return {
        "bytes": size,
        **{key: first[key] for key in ("rows", "facts", "duplicates", "dropped", "sizes")},
        "rows_per_second": medians,
        "rows_per_cpu_second": {name: statistics.median(values) for name, values in cpu_rates.items()},
        "times_pandas": {name: medians["ours"] / medians[name] for name in PANDAS},
        "all_rows_per_second": {name: [round(rate) for rate in values] for name, values in rates.items()},
        "peak_mib": max(run["peak_mib"] for run in runs["ours"]),
    }


def format_report(report: dict[str, Any]) -> str:
    """Return the report as text."""
    lines = [
        f"{report['rows']:,} rows, {report['bytes'] / 1e9:.1f} GB -> {report['facts']:,} facts {report['sizes']}",
        f"dropped {report['dropped']}, duplicates {report['duplicates']:,}",
    ]
    for name, rate in report["rows_per_second"].items():
        ratio = f"   ours is {report['times_pandas'][name]:.1f}×" if name in PANDAS else ""
        cpu_rate = report["rows_per_cpu_second"][name]
        lines.append(f"{name:22} {rate:12,.0f} rows/s {cpu_rate:12,.0f} rows/CPU-s{ratio}")
    lines.append(f"all runs {report['all_rows_per_second']}")
    lines.append(f"peak memory {report['peak_mib']:,.0f} MiB")
    return "\n".join(lines)


def main() -> None:
    """Read the path of the last argument with the contender of the first, and print the figures as JSON."""
    import resource

    contender, path = sys.argv[1:]
    if contender.startswith("engine:"):
        sys.stdout.write(json.dumps(read_with_engine(contender.removeprefix("engine:"), path)))
        return
    result = read_ours(path) if contender == "ours" else read_pandas(path, contender)
    result["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    main()
