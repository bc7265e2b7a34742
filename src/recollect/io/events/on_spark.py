"""Run the expression of raw events with Spark, on this machine or on a cluster."""

from __future__ import annotations

import os
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import ibis
import polars as pl
import pyarrow as pa

from recollect.errors import UserError, import_extra
from recollect.io.events.files import EventFormat, unpack
from recollect.io.events.query import (
    BAD_TEXT,
    MALFORMED,
    MAX_LINE_BYTES,
    NO_CELL,
    facts_and_drops,
    file_numbers,
    used_columns,
)

if TYPE_CHECKING:
    from recollect.io.events import EventRecipe, Progress

LOCAL = "local[*]"  # one thread per core of this machine
DRIVER_MEMORY = "3g"  # heap of Spark on this machine; what needs more goes to temporary files
SETTINGS = {
    "spark.driver.maxResultSize": "0",  # facts may be more than Spark's 1 GiB
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_GLOB_SIGNS = re.compile(r"[][{}*?\\\\]")  # of Hadoop's patterns


def check_spark() -> None:
    """Raise UserError if PySpark or Java is missing."""
    import_extra("pyspark", "PySpark", needed_by="the engine spark", extra="spark")
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=None if home is None else str(Path(home) / "bin")) is None:
        raise UserError("the engine spark needs Java 17 or newer, which is not here; install it, or set JAVA_HOME")


def run_on_spark(
    files: Sequence[Path],
    event_format: EventFormat,
    recipe: EventRecipe,
    names: Mapping[str, str] | None,
    folder: Path,
    progress: Progress | None,
    master: str | None,
) -> pl.DataFrame:
    """Run `facts_and_drops` on event files with Spark; archives are unpacked to `folder`, and Spark spills there."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        with _quiet(), _session(master, folder) as session:
            plain = _plain_files(files, folder, session.sparkContext.master)
            _lines(session, plain, event_format, recipe).createTempView("lines")
            backend = ibis.pyspark.connect(session)
            expression = facts_and_drops(
                backend.table("lines"), event_format, recipe, _name_table(session, backend, names)
            )
            table = session.sql(backend.compile(expression)).toArrow()
    except (PySparkException, Py4JError) as error:
        why = str(error).strip().partition("\n")[0]
        raise UserError(f"{files[0]} and others: Spark stopped ({why}); see what it logged") from error
    if progress is not None:
        size = sum(path.stat().st_size for path in files)
        progress(size, size)
    return pl.DataFrame(table)


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out what PySpark says about pandas, which is not used here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        yield


@contextmanager
def _session(master: str | None, folder: Path) -> Iterator[Any]:
    """Yield a session with settings of its own; Spark is stopped afterwards unless it was running before."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None and master is None:
        yield active.newSession()
        return
    if active is not None:
        raise UserError(f"Spark is running here at {active.sparkContext.master}; stop it, or leave out {master}")
    builder = SparkSession.builder.master(master or LOCAL).appName("recollect")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    if (master or LOCAL).startswith("local"):
        builder = builder.config("spark.driver.memory", DRIVER_MEMORY)
        builder = builder.config("spark.local.dir", str(folder))
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def _plain_files(files: Sequence[Path], folder: Path, master: str) -> list[Path]:
    """Return files that Spark reads, in the same order: unpacked ones, or .gz on a cluster, which unpacks them."""
    if master.startswith("local"):
        return unpack(files, folder)
    zipped = [path for path in files if path.suffix.lower() == ".zip"]
    if zipped:
        raise UserError(f"{zipped[0]}: a cluster cannot read .zip; unpack it to a folder that all machines share")
    return list(files)


def _lines(session: Any, files: Sequence[Path], event_format: EventFormat, recipe: EventRecipe) -> Any:
    """Return the rows of text files as `facts_and_drops` wants them."""
    from pyspark.sql import functions as F  # noqa: N812 (its usual name)

    paths = [str(path.resolve()) for path in files]
    value = F.col("value")
    text = session.read.text([_GLOB_SIGNS.sub(r"\\\g<0>", path) for path in paths])
    numbers = session.createDataFrame(_numbered(text.inputFiles(), paths))
    rows = text.filter(value != "").select("value", F.input_file_name().alias("filename"))
    rows = rows.join(F.broadcast(numbers), "filename").withColumn("cells", F.split("value", "\t", -1))
    columns = {i: F.nullif(F.get("cells", F.lit(i)), F.lit(NO_CELL)) for i in used_columns(event_format, recipe)}
    not_utf8 = F.lit(False)
    for i in columns:  # the reader leaves bytes as they are; splitting has replaced those that are not UTF-8
        cell = F.substring_index(F.substring_index("value", "\t", i + 1), "\t", -1)
        not_utf8 |= (F.size("cells") > i) & ~F.is_valid_utf8(cell)
    reason = F.when(~F.is_valid_utf8("value") & not_utf8, BAD_TEXT)
    reason = reason.when(F.octet_length("value") >= MAX_LINE_BYTES, MALFORMED)
    cells = [cell.alias(f"c{i}") for i, cell in columns.items()]
    return rows.select("file", reason.alias("rejected"), *cells)


def _numbered(addresses: Sequence[str], paths: Sequence[str]) -> pa.Table:
    """Return the number of every file by its address in Spark; raise UserError for a file that Spark leaves out."""
    numbers = dict(zip(paths, file_numbers(len(paths)), strict=True))
    found = {unquote(urlparse(address).path): address for address in addresses}
    for path in paths:
        if path not in found:
            raise UserError(f"{path}: Spark leaves out files whose name begins with . or _; rename it")
    return pa.table({"filename": list(found.values()), "file": [numbers[path] for path in found]})


def _name_table(session: Any, backend: Any, names: Mapping[str, str] | None) -> ibis.Table | None:
    """Return the event names of CAMEO codes as a table of Spark, or None."""
    if names is None:
        return None
    columns = {"whole_code": pa.array(names.keys(), pa.string()), "code_name": pa.array(names.values(), pa.string())}
    session.createDataFrame(pa.table(columns)).createTempView("names")
    return backend.table("names")
