"""Published datasets: what each is, where its files are published, and how they become a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from recollect.errors import UserError
from recollect.graph.facts import SPLITS, EpisodicGraph, Facts, Vocabulary, sort_facts
from recollect.graph.times import TimeAxis, time_bin
from recollect.io.assembly import Table, assemble
from recollect.io.datasets.fetch import File
from recollect.io.tables import read

Paths = Mapping[str, Path]  # where the files of a dataset were found, by role


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A named graph: what it is, how it is made of its files, and what it should come out as."""

    about: str
    make: Callable[..., EpisodicGraph]  # of the paths of its files, if any, and its options
    files: Mapping[str, File] = field(default_factory=dict)
    sizes: tuple[int, int, int] | None = None  # entities, predicates, times
    cells: int | None = None  # where a file is no text with a row for each
    licence: str = ""
    source: str = ""

    @property
    def rows(self) -> dict[str, int]:
        """How many rows it has for each split, where that is known."""
        if self.cells is not None:
            return {"train": self.cells}
        return {role: file.rows for role, file in self.files.items() if role in SPLITS and file.rows is not None}


_MMKB = "https://raw.githubusercontent.com/mniepert/mmkb/master/TemporalKGs"
_DE_SIMPLE = "https://raw.githubusercontent.com/BorealisAI/de-simple/master/datasets/gdelt"
_ATISE = "https://github.com/soledad921/ATISE/raw/master"
_TELM = "https://raw.githubusercontent.com/soledad921/TeLM/adb98453e43331d533af727ca34ed19c0aa0b2ea/tkbc/src_data"
_EVOKG = "https://raw.githubusercontent.com/NamyongPark/EvoKG/623fb216ef23c1efa6ab5f35e3f125cbcf2c704b/data"
_PYKEEN = "https://raw.githubusercontent.com/pykeen/pykeen/05c7bbb20c952f3e5e958e694344ace4005b1bbb/src/pykeen/datasets"
_CONVE = "https://raw.githubusercontent.com/TimDettmers/ConvE/f3c0eb286025410fa5b4c04696c918264163d0ca"
_ICEWS_TERMS = "ICEWS: see the terms at doi:10.7910/DVN/28075"
_GDELT_TERMS = "GDELT: free to use with attribution"

CAMEO = File(
    path="cameo/cameo-codes.csv",
    sha1="a8bdab54a6d9b2ba375571ea7ba3f5c07feece89",
    url="https://raw.githubusercontent.com/andybega/icews/master/data-raw/cameo-codes.csv",
)


def _split_files(folder: str, url: str, sha1s: Mapping[str, str | None], rows: Mapping[str, int]) -> dict[str, File]:
    """The train, valid and test files of a folder; `{}` in either name stands for the split."""
    return {
        split: File(path=folder.format(split), sha1=sha1s[split], url=url.format(split), rows=rows[split])
        for split in SPLITS
    }


def _by_split(train: Any, valid: Any, test: Any) -> dict[str, Any]:
    return {"train": train, "valid": valid, "test": test}


def _plain(paths: Paths) -> EpisodicGraph:
    return read(dict(paths))


def _static(paths: Paths) -> EpisodicGraph:
    return read(dict(paths), static=True)


def _ids_and_hours(paths: Paths) -> EpisodicGraph:
    return read(dict(paths), columns={"subject": 0, "predicate": 1, "object": 2, "time": 3}, grain="ordinal")


def _counted(paths: Paths, counts: bool = False) -> EpisodicGraph:
    columns = {"subject": 0, "predicate": 1, "object": 2, "time": 3} | ({"weight": 4} if counts else {})
    return read(paths["train"], columns=columns, grain="month")


def _intervals(paths: Paths) -> EpisodicGraph:
    """Facts by id with start and end, `#` for unknown digits, by year; ids named where there are maps.

    An interval holds in its end year too. One without an end still holds; one without a start is known at its
    end only. Intervals that end before they start are left out and counted.
    """
    names = {kind: _id_names(paths[kind]) for kind in ("entity", "predicate") if kind in paths}
    roles = {"subject": "entity", "predicate": "predicate", "object": "entity"}
    tables, rows, dropped = {}, {}, Counter[str]()
    for split in SPLITS:
        path = paths[split]
        frame = _text_columns(path, [*roles, "start", "end"])
        rows[split] = frame.height
        for role, kind in roles.items():
            if kind in names:
                frame = frame.with_columns(pl.col(role).replace_strict(names[kind]))
        frame = frame.with_columns(_year("start"), _year("end"))
        for reason, holds in {
            "unreadable year": pl.any_horizontal(pl.col("start", "end") == ""),
            "neither start nor end known": pl.all_horizontal(pl.col("start", "end").is_null()),
            "start after end": pl.col("start") > pl.col("end"),
        }.items():
            kept = frame.filter(~holds.fill_null(False))
            dropped[reason] += frame.height - kept.height
            frame = kept
        tables[split] = Table(frame, partial(_where, path), str(path))
    graph = assemble(tables, grain="year", inclusive_end=True, open_start="end", overlap="later", name="intervals")
    left = {reason: count for reason, count in dropped.items() if count}
    return replace(graph, rows=rows, dropped=left | dict(graph.dropped))


def _where(path: Path, row: int) -> str:
    return f"{path}, row {row} of those kept"


def _text_columns(path: Path, names: list[str]) -> pl.DataFrame:
    """Tab-separated text without header or quotes, all columns as text."""
    try:
        return pl.read_csv(
            path, separator="\t", has_header=False, quote_char=None, schema=dict.fromkeys(names, pl.String)
        )
    except pl.exceptions.PolarsError as error:
        raise UserError(f"{path}: wanted {len(names)} tab-separated columns ({', '.join(names)})") from error


def _id_names(path: Path) -> dict[str, str]:
    names = _text_columns(path, ["name", "id"])
    return dict(zip(names["id"], names["name"], strict=True))


def _year(role: str) -> pl.Expr:
    """The year of YYYY-MM-DD in four digits; null where it is all #, and empty where it cannot be read."""
    year = pl.col(role).str.extract("^([0-9]{1,4})-").str.zfill(4).fill_null("")
    return pl.when(~pl.col(role).str.starts_with("####-")).then(year).alias(role)


def _matlab(paths: Paths) -> EpisodicGraph:
    """Cells of a MATLAB file: `id` has actors, actors, CAMEO roots and weeks from 1, named by `actors` and `dates`."""
    try:
        from scipy.io import loadmat
        from scipy.io.matlab import MatReadError
    except ImportError as error:
        raise UserError("MATLAB files need scipy; install it with: pip install 'recollect[matlab]'") from error
    path = paths["train"]
    try:
        content = loadmat(path)
        subject, object_, root, week = (column.ravel().astype(np.int64) - 1 for column in content["id"].ravel())
        labels = {
            "entity": [str(x).strip() for x in content["actors"].ravel()],
            "predicate": [f"{i + 1:02d}" for i in range(int(root.max()) + 1)],
        }
        weeks = [str(x) for x in content["dates"].ravel()[: int(week.max()) + 1]]
    except (KeyError, ValueError, TypeError, MatReadError, OSError) as error:
        raise UserError(f"{path}: not the MATLAB file of cells that was wanted ({error})") from error
    return _of_cells(labels, _sunday_weeks(weeks), torch.from_numpy(np.stack([subject, root, object_, week], axis=1)))


def _sunday_weeks(starts: list[str]) -> TimeAxis:
    """Weeks that start on a Sunday, named by the ISO week in which all but that Sunday lies."""
    mondays = [str(np.datetime64(start) + 1) for start in starts]
    return TimeAxis.spanning("week", [b for day in mondays if (b := time_bin(day, "week")) is not None])


def _numpy_archive(paths: Paths, counts: bool = False) -> EpisodicGraph:
    """Counts Y[actor, actor, action, month] of a numpy archive, `actors` by name; both begin in January 1995."""
    path = paths["train"]
    try:
        with np.load(path) as archive:  # refuses whatever would have to be executed
            told = archive["Y"]
            actors = _texts(archive["actors"])
            actions = _action_labels(archive, told.shape[2])
    except (KeyError, ValueError, OSError, IndexError, AttributeError, TypeError) as error:
        raise UserError(f"{path}: not a numpy archive of Y and actors that can be read safely ({error})") from error
    if told.ndim != 4 or told.shape[:2] != (len(set(actors)), len(actors)):
        raise UserError(
            f"{path}: Y has shape {told.shape}; wanted actors × actors × actions × months for {len(set(actors))} actors"
        )
    subject, object_, action, month = told.nonzero()
    first = time_bin("1995-01", "month") or 0
    return _of_cells(
        {"entity": actors, "predicate": actions},
        TimeAxis("month", first, told.shape[3]),
        torch.from_numpy(np.stack([subject, action, object_, month], axis=1)),
        torch.from_numpy(told[subject, object_, action, month].astype(np.float32)) if counts else None,
    )


def _action_labels(archive: Any, count: int) -> list[str]:
    """CAMEO roots in their order; their names where the archive has them as text."""
    try:
        names = _texts(archive["actions"])
    except (KeyError, ValueError):
        names = []
    return names if len(set(names)) == count else [f"{i + 1:02d}" for i in range(count)]


def _texts(names: Any) -> list[str]:
    """Names of an array of text, or of bytes, as older archives have them."""
    return [name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name in names.tolist()]


def _of_cells(
    labels: Mapping[str, list[str]], times: TimeAxis, ids: torch.Tensor, weight: torch.Tensor | None = None
) -> EpisodicGraph:
    """A graph of cells whose ids are in the order of `labels`."""
    vocabularies = {kind: Vocabulary.of(kind, names) for kind, names in labels.items()}
    entity, predicate = (
        torch.tensor([vocabularies[kind].index(name) for name in labels[kind]]) for kind in ("entity", "predicate")
    )
    s, p, o, t = ids.unbind(1)
    facts = Facts(Facts.from_columns(entity[s], predicate[p], entity[o], t).ids, None, weight)
    sizes = {**{kind: len(v) for kind, v in vocabularies.items()}, "time": len(times)}
    graph = EpisodicGraph(vocabularies["entity"], vocabularies["predicate"], times, {"train": sort_facts(facts, sizes)})
    return replace(graph, rows={"train": len(facts)})


PUBLISHED: dict[str, Dataset] = {
    "icews14": Dataset(
        about="ICEWS 2014 by day, 7,128 actors: the usual benchmark, split at random",
        make=_plain,
        files=_split_files(
            "icews14/icews_2014_{}.txt",
            f"{_MMKB}/icews14/icews_2014_{{}}.txt",
            _by_split(
                "c11643a07a2dd70c26131a6c660f9c4115fb0f0b",
                "73d385953f2d813ec19f43fe11341f6974e88a6e",
                "31c99abed9094d6e9d486e4675aeacf3a665cad9",
            ),
            _by_split(72_826, 8_941, 8_963),
        ),
        sizes=(7128, 230, 365),
        licence=_ICEWS_TERMS,
        source="García-Durán et al. 2018, github.com/mniepert/mmkb",
    ),
    "icews05-15": Dataset(
        about="ICEWS 2005 to 2015 by day, 10,488 actors: the long benchmark, split at random",
        make=_plain,
        files=_split_files(
            "icews05-15/icews_2005-2015_{}.txt",
            f"{_MMKB}/icews05-15/icews_2005-2015_{{}}.txt",
            _by_split(
                "f340143afc2c442762a7994abd3fb85d8a09f517",
                "2fba2999eb0f49ca35a24482664352687174ff99",
                "3d9726df71149888fcb4b65f3b296ba7ac17d37d",
            ),
            _by_split(368_962, 46_275, 46_092),
        ),
        sizes=(10488, 251, 4017),
        licence=_ICEWS_TERMS,
        source="García-Durán et al. 2018, github.com/mniepert/mmkb",
    ),
    "gdelt500": Dataset(
        about="GDELT from April 2015 to March 2016 by day, the 500 most frequent actors",
        make=_plain,
        files=_split_files(
            "gdelt500/{}.txt",
            f"{_DE_SIMPLE}/{{}}.txt",
            _by_split(
                "61a664bfaa35fca8e32f549281ecdac40bee33b0",
                "91c61c6874eb75ef5752acf49825a523124f273d",
                "7cf6b2ddccc9f288a43dc9656bd063b08ae289b3",
            ),
            _by_split(2_735_685, 341_961, 341_961),
        ),
        sizes=(500, 20, 366),
        licence=_GDELT_TERMS,
        source="Trivedi et al. 2017 as split by Goel et al. 2020, github.com/BorealisAI/de-simple",
    ),
    "wikidata12k": Dataset(
        about="Wikidata statements with start and end, by year: true intervals",
        make=_intervals,
        files={
            **_split_files(
                "wikidata12k/{}.txt",
                f"{_ATISE}/wikidata/{{}}.txt",
                _by_split(
                    "490be54dbbdba9d42f695eadc37756c698dd3d98",
                    "1826be856bba2bbbd1d0eebdc98a9bbe87253667",
                    "7fa49f373b1c6cc2c507537ff72eeb24d423cdba",
                ),
                _by_split(32_497, 4_062, 4_062),
            ),
            "entity": File(
                path="wikidata12k/entity2id.txt",
                sha1="90a6c6a4545b72001e7f9d869b10d921672072d4",
                url=f"{_TELM}/wikidata12k/entity2id.txt",
            ),
            "predicate": File(
                path="wikidata12k/relation2id.txt",
                sha1="c2c7d191daff8526492d91539ee907a305699f83",
                url=f"{_TELM}/wikidata12k/relation2id.txt",
            ),
        },
        sizes=(12_554, 24, 2_002),
        licence="Wikidata: CC0; the names of the ids are from a repository under CC BY-NC",
        source="Dasgupta et al. 2018 (HyTE), github.com/soledad921/ATISE, names from github.com/soledad921/TeLM",
    ),
    "yago11k": Dataset(
        about="YAGO facts with start and end, by year: true intervals, ids without names",
        make=_intervals,
        files=_split_files(
            "yago11k/{}.txt",
            f"{_ATISE}/yago/{{}}.txt",
            _by_split(None, None, None),
            _by_split(16_408, 2_050, 2_051),
        ),
        licence="YAGO: CC BY",
        source="Dasgupta et al. 2018 (HyTE), github.com/soledad921/ATISE; the publisher gives no checksum",
    ),
    "icews-500": Dataset(
        about="ICEWS 2014 by day, 500 actors, split by time; ids without names",
        make=_ids_and_hours,
        files=_split_files(
            "icews-500/{}.txt",
            f"{_EVOKG}/ICEWS_500/{{}}.txt",
            _by_split(
                "943749260a1908a79984eb9c5cfbc6778aba4cf8",
                "96e5a2a701eccea5bea1b022a8a36e2c2866443b",
                "752bcc17825e113ab6f19df17a5e03c4a6c0ac53",
            ),
            _by_split(184_725, 32_292, 228_648),
        ),
        sizes=(500, 256, 365),
        licence=_ICEWS_TERMS,
        source="Know-Evolve (Trivedi et al. 2017), github.com/NamyongPark/EvoKG",
    ),
    "gdelt2012-countries": Dataset(
        about="GDELT 2012 by week, 220 countries and regions × 20 CAMEO roots; the nearest to the paper's GDELT",
        make=_matlab,
        files={
            "train": File(
                path="gdelt2012-country-week/gdelt.mat",
                sha1="11e25ad6acad05c516bd3108d3e5835744035454",
                url="https://github.com/jinh-tech/bptf/raw/master/data/gdelt/gdelt.mat",
            )
        },
        sizes=(220, 20, 52),
        cells=1_030_625,
        licence=_GDELT_TERMS,
        source="github.com/jinh-tech/bptf",
    ),
    **{
        name: Dataset(
            about=f"ICEWS countries by month, {years}; counts=True weighs facts by their events",
            make=_numpy_archive,
            files={"train": file},
            licence=_ICEWS_TERMS,
            source=source,
        )
        for name, years, source, file in (
            (
                "icews-schein",
                "1995 to 2000: 72 months as in the paper, whose source it may be",
                "Schein et al. 2016, github.com/aschein/bptd",
                File(
                    path="icews-schein/1995-2000-M.dat",
                    sha1="bd9b08ed670449af02d39d96fd23d17176072e45",
                    url="https://github.com/aschein/bptd/raw/master/dat/1995-2000-M.dat",
                ),
            ),
            (
                "icews-schein-2013",
                "1995 to 2013",
                "Schein et al. 2015, github.com/aschein/bptf",
                File(
                    path="icews-schein/data_compressed.npz",
                    sha1="3bab0c48b27f675ccb7efb17b8d6c39a0751b0bf",
                    url="https://github.com/aschein/bptf/raw/master/examples/ICEWS/dat/1995-2013-M/data_compressed.npz",
                ),
            ),
        )
    },
    "icews-country-month": Dataset(
        about="ICEWS countries by month, 1991 to 2013, CAMEO roots 10 to 20; counts=True weighs facts by their events",
        make=_counted,
        files={
            "train": File(
                path="icews-country-month/quads_counts.tsv",
                rows=276_010,
                sha1="9ada275264506435d75663108c140a8791b6dfc1",
            )
        },
        sizes=(148, 11, 276),
        licence=_ICEWS_TERMS,
        source="derived from github.com/anhqle/icews-dtree; not published in this form",
    ),
    "fb15k-237": Dataset(
        about="Freebase triples without time, the static benchmark",
        make=_static,
        files={
            split: replace(file, url=f"{_CONVE}/FB15k-237.tar.gz", member=f"{split}.txt")
            for split, file in _split_files(
                "static/fb15k-237/{}.txt",
                "",
                _by_split(
                    "64905fe4545b7f2f75454d0b6fd52dfdcab90ed4",
                    "1eb92bf5af311b25748db1b5d85db39cb34ba2e8",
                    "01f6b3bf2fdc68b4913e816ac859921b740d09ee",
                ),
                _by_split(272_115, 17_535, 20_466),
            ).items()
        },
        sizes=(14_541, 237, 1),
        licence="Freebase: CC BY 2.5",
        source="Toutanova and Chen 2015, github.com/TimDettmers/ConvE",
    ),
    **{
        name: Dataset(
            about=about,
            make=_static,
            files=_split_files(f"static/{name}/{{}}.txt", f"{_PYKEEN}/{name}/{{}}.txt", sha1s, rows),
            sizes=sizes,
            licence="not told; the repository is under the MIT licence",
            source="github.com/pykeen/pykeen",
        )
        for name, about, sizes, rows, sha1s in (
            (
                "nations",
                "relations of 14 nations, without time",
                (14, 55, 1),
                _by_split(1_592, 199, 201),
                _by_split(
                    "0cc3159d8575b7cf104373822aaf7bb6dce69cfc",
                    "cff2dc60b1ca74596fbac326d20b8fd88a8e04e1",
                    "2adc0ff73deeccc383928435cfc6c4e1ad93d27d",
                ),
            ),
            (
                "umls",
                "a medical semantic network, without time",
                (135, 46, 1),
                _by_split(5_216, 652, 661),
                _by_split(
                    "e18374ce247e459b388b74378c6f185248866585",
                    "34b12e146f2bac5dc5b96f8e6fdbf08e95088dcf",
                    "821261fdf02fe642879e64b00572b3529a1c7147",
                ),
            ),
            (
                "kinships",
                "kinship terms of the Alyawarra, without time",
                (104, 25, 1),
                _by_split(8_544, 1_068, 1_074),
                _by_split(
                    "f4c26d1abb3e3f5aa98b18c29db021111674c745",
                    "d2e83b1d9dc323c61ad7ca36b24061d89d7a42e4",
                    "5f1781e9df270c3d56f1952458b7b687b3baefc4",
                ),
            ),
        )
    },
}
