"""Mutated bundles: damage that digests show, and hostile content whose digests are right.

`python -m torture.mutants make SOURCE OUT FIRST COUNT` writes mutants of the bundles below SOURCE. Another process,
`python -m torture.mutants load SOURCE OUT`, loads them and prints as JSON how many were loaded and refused, the slowest
call, the growth of the peak memory, and every mutant for which another error was raised.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet
import torch

from recollect import EpisodicGraph, Facts, TimeAxis, UserError, Vocabulary, load
from recollect.io.label_tables import digest_of_file
from recollect.memory.bundle import folder as bundle

NUMBERS = [0, 1, -1, 2, 255, 2**31, 2**32 + 1, 2**53, 2**62, 2**63 - 1, 2**63, 2**64, 10**18, 10**30, 10**400]
VALUES: list[Any] = [
    *(None, True, False, 0.5, -1e308, 1e-320, "", "x", "train", "1e999", "../../etc/passwd", "\ud800", "\0", "nan"),
    *([], {}, [[]], [1, 2], {"a": 1}, {"s": [1, 1]}, ["train"], [[[[[[]]]]]], "9" * 5000, "month", "ordinal", "both"),
]
ABOUT_TEXTS = [b"", b"[", b"null", b"[" * 100_000, b'{"digest": 1}', b"\xff\xfe", b"{}" * 9, b'{"a":' * 5_000]


def forge_fingerprint(folder: Path, about: dict[str, Any]) -> None:
    """Set the fingerprint of the graph to what the tables give, as far as they can be read."""
    try:
        tables = {name: pa.parquet.read_table(folder / name) for name in bundle.TABLES}
        entities, predicates = (
            Vocabulary(kind, tuple(tables[name]["label"].to_pylist()))
            for kind, name in (("entity", bundle.ENTITIES), ("predicate", bundle.PREDICATES))
        )
        facts, splits = tables[bundle.FACTS], {}
        for split in about["splits"]:
            part = facts.filter(pa.compute.equal(facts["split"].cast(pa.string()), split))
            splits[split] = Facts(torch.from_numpy(np.stack([part[slot].to_numpy() for slot in "spot"], axis=1)))
        graph = EpisodicGraph(entities, predicates, TimeAxis(**about["data"]["times"]), splits)
        about["data"]["fingerprint"] = graph.fingerprint
    except Exception:
        return


def sign(folder: Path, about: dict[str, Any]) -> None:
    """Write a description whose digests are those of the files there are."""
    forge_fingerprint(folder, about)
    files = about.get("files")
    if isinstance(files, dict):
        for name in files:
            if isinstance(name, str) and "/" not in name and (folder / name).is_file():
                files[name] = digest_of_file(folder / name)
    about.pop("digest", None)
    try:
        about["digest"] = bundle._digest_of(about)
    except ValueError:
        about["digest"] = "none"
    (folder / bundle.ABOUT).write_text(json.dumps(about))


def any_value(rng: random.Random) -> Any:
    return rng.choice(NUMBERS) if rng.random() < 0.5 else rng.choice(VALUES)


def mutate_json(value: Any, rng: random.Random) -> Any:
    """Replace, remove or add something at a random place of a JSON value."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.15:
        if isinstance(value, int | float) and rng.random() < 0.3:
            return value * rng.choice([-1, 2, 10**6]) + rng.choice([-1, 0, 1])
        return any_value(rng)
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key, action = rng.choice(keys), rng.random()
    if action < 0.1:
        del value[key]
    elif action < 0.15 and isinstance(value, dict):
        value[rng.choice(["x", "files", "levels", "reciprocal", "projection", "time"])] = any_value(rng)
    elif action < 0.2 and isinstance(value, list):
        value.append(any_value(rng))
    else:
        value[key] = mutate_json(value[key], rng)
    return value


def mutate_bytes(content: bytes, rng: random.Random) -> bytes:
    """Flip, overwrite, cut out, repeat or append some bytes."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 4, 16])):
        at, length = rng.randrange(len(data) + 1), rng.choice([1, 1, 2, 4, 8, 64])
        action = rng.randrange(6)
        if action == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif action == 1:
            data[at : at + length] = rng.randbytes(length)
        elif action == 2:
            data[at : at + length] = rng.choice([b"\xff", b"\0", b"\x80"]) * length
        elif action == 3:
            del data[at : at + length]
        elif action == 4:
            data[at:at] = data[at : at + length]
        else:
            del data[at:]
    return bytes(data)


def mutate_tensors(content: bytes, rng: random.Random) -> bytes:
    """Mutate the JSON header of a safetensors file, which says shapes, types and places, or any byte of it."""
    if rng.random() < 0.4:
        return mutate_bytes(content, rng)
    length = int.from_bytes(content[:8], "little")
    header = json.dumps(mutate_json(json.loads(content[8 : 8 + length]), rng)).encode()
    declared = len(header) if rng.random() < 0.95 else rng.choice(NUMBERS[:10]) % 2**63
    return declared.to_bytes(8, "little") + header + content[8 + length :]


def mutate_table(content: bytes, rng: random.Random) -> bytes:
    """Mutate any byte of a Parquet file, or write a valid one with another column, type or number of rows."""
    if rng.random() < 0.6:
        return mutate_bytes(content, rng)
    table = pa.parquet.read_table(pa.BufferReader(content))
    name = rng.choice(table.column_names)
    place, action = table.column_names.index(name), rng.randrange(7)
    if action == 0:
        table = table.drop_columns([name])
    elif action == 1:
        table = table.append_column("x", table[name])
    elif action == 2:
        rows = rng.choice([0, 1, 5, 10**5, 3 * 10**6])
        table = table.take(pa.array(np.zeros(rows, np.int64)))
    elif action == 3:
        table = pa.concat_tables([table, table])
    elif action == 4:
        table = table.set_column(place, name, pa.nulls(len(table), table[name].type))
    elif action == 5:
        table = table.set_column(place, name, pa.array([[1]] * len(table)))
    else:
        kind = rng.choice([pa.uint64(), pa.float64(), pa.int64(), pa.int8(), pa.string()])
        values = np.array([rng.choice([0, 1, 2**31, 2**53]) for _ in range(len(table))])
        table = table.set_column(place, name, pa.array(values).cast(kind, safe=False))
    out = pa.BufferOutputStream()
    pa.parquet.write_table(table, out, compression=rng.choice(["none", "zstd"]))
    return out.getvalue().to_pybytes()


def mutate_ids(content: bytes, rng: random.Random) -> bytes:
    """Replace one id by one that no label has."""
    table = pa.parquet.read_table(pa.BufferReader(content))
    slot = rng.choice("spot")
    ids = table[slot].to_numpy().copy()
    ids[rng.randrange(len(ids))] = rng.choice([-1, len(ids), 10**6, 2**31, 2**40, -(2**63), 2**63 - 1])
    out = pa.BufferOutputStream()
    pa.parquet.write_table(table.set_column(table.column_names.index(slot), slot, pa.array(ids)), out)
    return out.getvalue().to_pybytes()


def mutate_folder(folder: Path, rng: random.Random) -> None:
    """Remove a file, or put something else in its place."""
    file = folder / rng.choice([bundle.ABOUT, bundle.WEIGHTS, *bundle.TABLES])
    file.unlink()
    action = rng.randrange(5)
    if action == 0:
        file.mkdir()
    elif action == 1:
        file.symlink_to(rng.choice(["/dev/zero", "/dev/null", file.name, "nowhere", bundle.WEIGHTS]))
    elif action == 2:
        (folder / bundle.ABOUT).unlink(missing_ok=True)
        (folder / bundle.ABOUT).write_bytes(rng.choice(ABOUT_TEXTS))
    elif action == 3:
        file.write_bytes(rng.randbytes(rng.choice([0, 1, 100])))


def mutate(folder: Path, seed: int) -> None:
    """Mutate a bundle; four of five mutants have right digests."""
    rng = random.Random(seed)
    kind = rng.random()
    if kind < 0.05:
        mutate_folder(folder, rng)
        return
    about = json.loads((folder / bundle.ABOUT).read_text())
    if kind < 0.15:
        file = folder / rng.choice([bundle.ABOUT, bundle.WEIGHTS, *bundle.TABLES])
        file.write_bytes(mutate_bytes(file.read_bytes(), rng))
        return
    if kind < 0.5:
        about = mutate_json(about, rng)
    elif kind < 0.7:
        file = rng.choice(sorted(folder.glob(f"*{bundle.TENSORS}")))
        file.write_bytes(mutate_tensors(file.read_bytes(), rng))
    elif kind < 0.95:
        file = folder / rng.choice(bundle.TABLES)
        file.write_bytes(mutate_table(file.read_bytes(), rng))
    else:
        file = folder / bundle.FACTS
        file.write_bytes(mutate_ids(file.read_bytes(), rng))
    if isinstance(about, dict):
        sign(folder, about)
    else:
        (folder / bundle.ABOUT).write_text(json.dumps(about))


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in KiB


def make_mutants(source: Path, out: Path, first: int, count: int) -> None:
    """Write mutants number first, …, first + count − 1 of the bundles below `source` to folders below `out`."""
    originals = sorted(path for path in source.iterdir() if (path / bundle.ABOUT).is_file())
    for seed in range(first, first + count):
        shutil.copytree(originals[seed % len(originals)], out / str(seed))
        mutate(out / str(seed), seed)


def load_mutants(source: Path, mutants: Path) -> dict[str, Any]:
    """Load the bundles below `source`, then all mutants; return what happened."""
    for original in source.iterdir():
        if (original / bundle.ABOUT).is_file():
            load(original)
    outcomes = Counter({"loaded": 0, "refused": 0})
    slowest, errors, before = 0.0, [], peak_bytes()
    for folder in mutants.iterdir():
        start = time.monotonic()
        try:
            load(folder)
            outcomes["loaded"] += 1
        except UserError as error:
            outcomes["refused"] += 1
            if "\n" in str(error):
                errors.append((folder.name, "a message of several lines", str(error)))
        except BaseException as error:  # polars derives PanicException from it
            errors.append((folder.name, type(error).__name__, str(error)[:300]))
        slowest = max(slowest, time.monotonic() - start)
    return {**outcomes, "errors": errors, "slowest": slowest, "growth": peak_bytes() - before}


if __name__ == "__main__":
    task, *words = sys.argv[1:]
    if task == "make":
        make_mutants(Path(words[0]), Path(words[1]), int(words[2]), int(words[3]))
    else:
        print(json.dumps(load_mutants(Path(words[0]), Path(words[1]))))  # noqa: T201
