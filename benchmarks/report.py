"""Format measured records as lines and tables."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.measure import Record


def tables(records: Sequence[Record]) -> list[list[dict[str, str]]]:
    """Return the rows of up to three tables: seconds, peak memory and growth; those without rows are left out."""
    seconds = [_seconds_row(record) for record in records if record.get("ours_s") is not None]
    memory = [_memory_row(record) for record in records if record.get("weight_bytes") is not None]
    growth = [_growth_row(record) for record in records if record.get("exponent") is not None]
    return [rows for rows in (seconds, memory, growth) if rows]


def format_record(record: Record) -> str:
    """Return a record as one line, to print while the next is measured."""
    parts = [label(record)]
    for rows in tables([record]):
        parts += [f"{name} {value}" for name, value in rows[0].items() if value and name != "what"]
    if record.get("note"):
        parts.append(record["note"])
    return "  ".join(parts)


def label(record: Record) -> str:
    """Return the name, model, dim and size of a record."""
    size = f" {record['size']:,}" if "size" in record else ""
    dim = f"/{record['dim']}" if record["dim"] is not None else ""
    return f"{record['name']}/{record['model']}{dim}{size}"


def _seconds_row(record: Record) -> dict[str, str]:
    paper = record.get("paper_s")
    return {
        "what": label(record),
        "ours": _seconds(record["ours_s"]),
        "reference": _seconds(record["reference_s"]),
        "bound": _seconds(record["bound_s"]),
        "ratio": _number(record["ratio"], ".2f"),
        "of bound": _number(record["of_bound"], ".1%"),
        "rate": f"{_short(record['per_second'])} {record['unit']}/s",
        "K80": f"{paper} s" if paper else "",
    }


def _memory_row(record: Record) -> dict[str, str]:
    return {
        "what": label(record),
        "ours": _gigabytes(record["peak_bytes"]),
        "reference": _gigabytes(record.get("reference_peak_bytes")),
        "weights alone": _gigabytes(record["weight_bytes"]),
    }


def _growth_row(record: Record) -> dict[str, str]:
    return {
        "what": label(record),
        "exponent of ours": _number(record["exponent"], ".2f"),
        "of the reference": _number(record["reference_exponent"], ".2f"),
    }


def _number(value: float | None, spec: str) -> str:
    return "–" if value is None else format(value, spec)


def _gigabytes(size: int | None) -> str:
    return "–" if size is None else f"{size / 2**30:.2f} GiB"


def _short(value: float) -> str:
    """Return a number with three digits and a unit prefix.

    >>> _short(1234567), _short(43210), _short(12.3)
    ('1.23M', '43.2k', '12.3')
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def _seconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.3g} s" if value >= 1 else f"{value * 1e3:.3g} ms"
