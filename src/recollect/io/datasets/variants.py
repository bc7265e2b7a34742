"""Recognise which published variant of a dataset a file is: several splits circulate under one name."""

from __future__ import annotations

import re
from pathlib import Path

from recollect.graph.facts import SPLITS

VARIANTS: dict[str, tuple[int | None, ...]] = {  # rows of train, valid, test
    "ICEWS14 as García-Durán et al. 2018 split it": (72_826, 8_941, 8_963),
    "ICEWS14 as Know-Evolve and RE-NET split it": (323_895, None, 341_409),
    "ICEWS14 as RE-GCN splits it": (74_845, 8_514, 7_371),
    "ICEWS14 as xERTE splits it": (63_685, 13_823, 13_222),
    "ICEWS05-15 as García-Durán et al. 2018 split it": (368_962, 46_275, 46_092),
    "ICEWS05-15 as RE-GCN splits it": (368_868, 46_302, 46_159),
    "ICEWS05-15 as xERTE splits it": (322_958, 69_224, 69_147),
    "ICEWS-500 as EvoKG splits it": (184_725, 32_292, 228_648),
    "ICEWS18 as RE-NET splits it": (373_018, 45_995, 49_545),
    "GDELT-500 as DE-SimplE splits it": (2_735_685, 341_961, 341_961),
    "GDELT as RE-NET splits it": (1_734_399, 238_765, 305_241),
    "YAGO15k as García-Durán et al. 2018 split it": (110_441, None, None),
    "YAGO11k as HyTE splits it": (16_408, 2_050, 2_051),
    "Wikidata12k as HyTE splits it": (32_497, 4_062, 4_062),
    "WIKI as RE-NET splits it": (539_286, None, None),
    "YAGO as RE-NET splits it": (161_540, None, None),
}
_OPENINGS = {  # in lower case
    b"\x1f\x8b": "a gzip archive",
    b"pk\x03\x04": "a zip archive",
    b"<!doctype html": "a web page",
    b"<html": "a web page",
    b"version https://git-lfs": "a Git LFS pointer",
}
_HEAD = 1 << 16  # bytes that decide what kind of file it is
_SAMPLE_ROWS = 1000
_DATE = re.compile(rb'"?-?[\d#]{1,4}-[\d#]{2}-[\d#]{2}')
_NUMBER = re.compile(rb"\d{1,18}")


def variant(path: Path, wanted: int | None = None) -> str:
    """Describe a file that is not the expected one; `wanted` is the expected number of rows, if known.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     written = file.write(b"0\\t1\\t2\\t24\\n" * 74_845), file.flush()
    ...     variant(Path(file.name))
    '74,845 rows of 4 columns, ids and hours, like ICEWS14 as RE-GCN splits it (train)'
    """
    rows, description = count_rows(path), _describe(path)
    if rows == wanted:
        return f"{description}, the right number of rows but other bytes (edited, or other line ends)"
    like = published_split(rows)
    return f"{description}, like {like}" if like else description


def _describe(path: Path) -> str:
    """Describe the content of a file: kind of archive, or rows, columns and kinds of labels."""
    content = path.read_bytes()
    head = content[:_HEAD]
    if not head:
        return "nothing"
    for opening, kind in _OPENINGS.items():
        if head.lstrip().lower().startswith(opening):
            return f"{kind} of {len(content):,} bytes"
    if b"\0" in head:
        return f"binary data of {len(content):,} bytes"
    lines = content.removesuffix(b"\n").split(b"\n")
    rows = len(lines)
    separator = b"\t" if b"\t" in head else b","
    sample = [line.rstrip(b"\r").split(separator) for line in lines[:: max(1, rows // _SAMPLE_ROWS)]]
    widths = sorted({len(row) for row in sample})
    columns = f"{widths[0]} to {widths[-1]} columns" if len(widths) > 1 else _plural(widths[0], "column")
    line_ends = ", with Windows line ends" if b"\r\n" in head else ""
    return f"{_plural(rows, 'row')} of {columns}{_label_kinds(sample)}{line_ends}"


def _label_kinds(sample: list[list[bytes]]) -> str:
    """Return whether labels are ids or names, and times dates, hours or ordinals; empty if there are no facts."""
    if not all(len(row) > 2 for row in sample):
        return ""
    labels = "ids" if all(_NUMBER.fullmatch(label) for row in sample for label in row[:3]) else "names"
    times = [row[3:] for row in sample if len(row) > 3]
    if times and all(any(map(_DATE.match, fields)) for fields in times):
        return f", {labels} and dates"
    if times and all(_NUMBER.fullmatch(fields[0]) for fields in times):
        numbers = {int(fields[0]) for fields in times}
        hours = numbers != {0} and all(number % 24 == 0 for number in numbers)
        return f", {labels} and {'hours' if hours else 'ordinals'}"
    return f", {labels}"


def count_rows(path: Path) -> int:
    """Return the number of lines; the last may lack its line end."""
    with path.open("rb") as opened:
        return sum(1 for _ in opened)


def published_split(rows: int) -> str:
    """Return the name of the published split with this number of rows, or an empty text."""
    for name, counts in VARIANTS.items():
        splits = [split for split, count in zip(SPLITS, counts, strict=True) if count == rows]
        if splits:
            return f"{name} ({' or '.join(splits)})"
    return ""


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
