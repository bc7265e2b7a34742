"""Raw events into a country-day graph: rows per second and peak memory, next to pandas on a part of the same files.

The rows have the shape of GDELT: actors, events and places of the real sample, recombined, with new ids and dates. One
in ten thousand is cut short and one in a thousand repeats an event id. Needs RECOLLECT_DATA and about 8 GB of disk.

    RECOLLECT_DATA=… python benchmarks/events.py [--rows 20000000] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import date, timedelta
from pathlib import Path

PART = 1_000_000
ROUNDS = 5
SAMPLE = "gdelt-raw/20191024143000.export.CSV"
PANDAS = (
    "pandas",  # the same facts: codes with leading zeros, rows of the right width, every event id once
    "pandas, facts only",  # codes with leading zeros, but broken rows and repeated ids are counted
    "pandas, types guessed",  # the same, and codes lose their leading zeros
)


def write_part(sample: Path, path: Path, first: int, rows: int) -> None:
    """GDELT-shaped rows: who, whom and what of three sample rows, on a day of 2012."""
    dice = random.Random(first)
    cells = [line.split("\t") for line in sample.read_text(encoding="utf-8").split("\n") if line]
    actors1, actors2, events = (["\t".join(row[a:b]) for row in cells] for a, b in ((5, 15), (15, 25), (25, None)))
    days = [date(2012, 1, 1) + timedelta(days=i) for i in range(366)]
    dates = [f"{d:%Y%m%d}\t{d:%Y%m}\t{d:%Y}\t{d.year + d.timetuple().tm_yday / 366:.4f}" for d in days]
    n = len(cells)
    with path.open("w", encoding="utf-8") as file:
        for start in range(first, first + rows, 10_000):
            lines = []
            for event in range(start, min(start + 10_000, first + rows)):
                event_id = event - dice.randrange(1, 5000) if event % 1000 == 999 and event > 5000 else event
                who, whom, what = (column[dice.randrange(n)] for column in (actors1, actors2, events))
                row = f"{event_id}\t{dates[dice.randrange(366)]}\t{who}\t{whom}\t{what}"
                lines.append(row[: len(row) // 2] if event % 10_000 == 5_000 else row)
            file.write("\n".join(lines) + "\n")


def first_rows(pattern: str) -> bytes:
    with sorted(Path(pattern).parent.glob(Path(pattern).name))[0].open("rb") as file:
        return b"".join(file.readline() for _ in range(1000))


def ours(pattern: str) -> dict[str, object]:
    """Build the graph and return rows, seconds and the row accounting."""
    from recollect.io.events import read_events

    with tempfile.TemporaryDirectory() as folder:  # imports at first use are not timed
        few = Path(folder) / "few.CSV"
        few.write_bytes(first_rows(pattern))
        read_events([few])
    began, cpu_began = time.perf_counter(), time.process_time()
    graph = read_events([pattern])
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
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


def pandas(path: str, name: str) -> dict[str, object]:
    """Count facts of one file with pandas and return rows and seconds."""
    count_with_pandas(path, name, nrows=1000)  # not timed: first use
    began, cpu_began = time.perf_counter(), time.process_time()
    rows, facts = count_with_pandas(path, name)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    return {"rows": rows, "seconds": seconds, "cpu_seconds": cpu_seconds, "facts": facts}


def count_with_pandas(path: str, name: str, nrows: int | None = None) -> tuple[int, int]:
    """Return the number of rows and of distinct (subject, predicate, object, date)."""
    import pandas as pd

    columns = [0, 1, 7, 17, 28] + ([60] if name == "pandas" else [])
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
    return rows, len(frame.groupby([7, 28, 17, 1]).size())


def measured(*words: str) -> dict[str, object]:
    """Run one contender in its own process and return its result and peak memory."""
    done = subprocess.run([sys.executable, __file__, "--contender", *words], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--contender", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contender:
        name, *rest = options.contender
        result = ours(*rest) if name == "ours" else pandas(rest[0], name)
        print(json.dumps(result | {"peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
        return
    data = os.environ.get("RECOLLECT_DATA")
    sample = Path(data or ".") / SAMPLE
    if not sample.is_file():
        sys.exit(f"{sample}: the real sample is not here; set RECOLLECT_DATA to a folder that holds it")
    with tempfile.TemporaryDirectory() as folder:
        parts = [Path(folder) / f"{i:04d}.export.CSV" for i in range(-(-options.rows // PART))]
        with ProcessPoolExecutor() as pool:
            jobs = [
                pool.submit(write_part, sample, path, 10**9 + i * PART, min(PART, options.rows - i * PART))
                for i, path in enumerate(parts)
            ]
            for job in jobs:
                job.result()
        size = sum(path.stat().st_size for path in parts)
        os.sync()  # writing must not go on during the measurement
        pattern, part = f"{folder}/*.export.CSV", str(parts[0])
        runs = {name: [] for name in ("ours", *PANDAS)}
        for turn in range(1 + ROUNDS):  # in turns: other load of the machine hits all contenders
            each = {"ours": measured("ours", pattern)} | {name: measured(name, part) for name in PANDAS}
            if turn:  # the first round fills the page cache
                for name, run in each.items():
                    runs[name].append(run)
    speed = {name: statistics.median(run["rows"] / run["seconds"] for run in each) for name, each in runs.items()}
    per_cpu = {name: statistics.median(run["rows"] / run["cpu_seconds"] for run in each) for name, each in runs.items()}
    first = runs["ours"][0]
    assert len({run["fingerprint"] for run in runs["ours"]}) == 1, "the same files must give the same graph"
    report = {
        "rows": first["rows"],
        "bytes": size,
        "facts": first["facts"],
        "duplicates": first["duplicates"],
        "dropped": first["dropped"],
        "sizes": first["sizes"],
        "rows_per_second": speed,
        "rows_per_cpu_second": per_cpu,  # of one core: independent of other load on the machine
        "times_pandas": {name: speed["ours"] / speed[name] for name in PANDAS},
        "all_rows_per_second": {
            name: [round(run["rows"] / run["seconds"]) for run in each] for name, each in runs.items()
        },
        "peak_mib": max(run["peak_mib"] for run in runs["ours"]),
    }
    if options.json:
        print(json.dumps(report))
        return
    print(f"{report['rows']:,} rows, {size / 1e9:.1f} GB -> {report['facts']:,} facts {report['sizes']}")
    print(f"dropped {report['dropped']}, duplicates {report['duplicates']:,}")
    for name, value in speed.items():
        ratio = "" if name == "ours" else f"   ours is {speed['ours'] / value:.1f}×"
        print(f"{name:22} {value:12,.0f} rows/s {per_cpu[name]:12,.0f} rows/CPU-s{ratio}")
    print(f"all runs {report['all_rows_per_second']}")
    print(f"peak memory {report['peak_mib']:,.0f} MiB")


if __name__ == "__main__":
    main()
