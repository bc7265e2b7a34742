"""The published datasets: what each is, where its files are published, and how they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from recollect.graph.facts import SPLITS, EpisodicGraph
from recollect.io.datasets import readers
from recollect.io.datasets.download import File


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A named graph: description, files, the function that reads them, and the expected sizes."""

    about: str
    make: Callable[..., EpisodicGraph]  # arguments: the paths of the files by role, if there are any, and options
    files: Mapping[str, File] = field(default_factory=dict)
    sizes: tuple[int, int, int] | None = None  # entities, predicates, times
    cells: int | None = None  # number of facts, where the file is not a text of one fact a row
    licence: str = ""
    source: str = ""

    @property
    def rows(self) -> dict[str, int]:
        """Return the number of rows of each split, where that is known."""
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


def _split_files(
    path: str, url: str, *, sha1: tuple[str | None, ...], rows: tuple[int, ...], member: str | None = None
) -> dict[str, File]:
    """Return the train, valid and test files; `{}` in path, url and member is the name of the split."""
    return {
        split: File(
            path=path.format(split),
            sha1=sha1[i],
            url=url.format(split),
            member=None if member is None else member.format(split),
            rows=rows[i],
        )
        for i, split in enumerate(SPLITS)
    }


def _pykeen_dataset(
    name: str, *, about: str, sizes: tuple[int, int, int], sha1: tuple[str, ...], rows: tuple[int, ...]
) -> Dataset:
    """Return a static dataset that the PyKEEN repository holds."""
    return Dataset(
        about=about,
        make=readers.read_static,
        files=_split_files(f"static/{name}/{{}}.txt", f"{_PYKEEN}/{name}/{{}}.txt", sha1=sha1, rows=rows),
        sizes=sizes,
        licence="not stated; the repository is under the MIT licence",
        source="github.com/pykeen/pykeen",
    )


PUBLISHED: dict[str, Dataset] = {
    "icews14": Dataset(
        about="ICEWS 2014 by day, 7,128 actors: the usual benchmark, split at random",
        make=readers.read_facts,
        files=_split_files(
            "icews14/icews_2014_{}.txt",
            f"{_MMKB}/icews14/icews_2014_{{}}.txt",
            sha1=(
                "c11643a07a2dd70c26131a6c660f9c4115fb0f0b",
                "73d385953f2d813ec19f43fe11341f6974e88a6e",
                "31c99abed9094d6e9d486e4675aeacf3a665cad9",
            ),
            rows=(72_826, 8_941, 8_963),
        ),
        sizes=(7128, 230, 365),
        licence=_ICEWS_TERMS,
        source="García-Durán et al. 2018, github.com/mniepert/mmkb",
    ),
    "icews05-15": Dataset(
        about="ICEWS 2005 to 2015 by day, 10,488 actors: the long benchmark, split at random",
        make=readers.read_facts,
        files=_split_files(
            "icews05-15/icews_2005-2015_{}.txt",
            f"{_MMKB}/icews05-15/icews_2005-2015_{{}}.txt",
            sha1=(
                "f340143afc2c442762a7994abd3fb85d8a09f517",
                "2fba2999eb0f49ca35a24482664352687174ff99",
                "3d9726df71149888fcb4b65f3b296ba7ac17d37d",
            ),
            rows=(368_962, 46_275, 46_092),
        ),
        sizes=(10488, 251, 4017),
        licence=_ICEWS_TERMS,
        source="García-Durán et al. 2018, github.com/mniepert/mmkb",
    ),
    "gdelt500": Dataset(
        about="GDELT from April 2015 to March 2016 by day, the 500 most frequent actors",
        make=readers.read_facts,
        files=_split_files(
            "gdelt500/{}.txt",
            f"{_DE_SIMPLE}/{{}}.txt",
            sha1=(
                "61a664bfaa35fca8e32f549281ecdac40bee33b0",
                "91c61c6874eb75ef5752acf49825a523124f273d",
                "7cf6b2ddccc9f288a43dc9656bd063b08ae289b3",
            ),
            rows=(2_735_685, 341_961, 341_961),
        ),
        sizes=(500, 20, 366),
        licence=_GDELT_TERMS,
        source="Trivedi et al. 2017 as split by Goel et al. 2020, github.com/BorealisAI/de-simple",
    ),
    "wikidata12k": Dataset(
        about="Wikidata statements with start and end, by year: true intervals",
        make=readers.read_intervals,
        files={
            **_split_files(
                "wikidata12k/{}.txt",
                f"{_ATISE}/wikidata/{{}}.txt",
                sha1=(
                    "490be54dbbdba9d42f695eadc37756c698dd3d98",
                    "1826be856bba2bbbd1d0eebdc98a9bbe87253667",
                    "7fa49f373b1c6cc2c507537ff72eeb24d423cdba",
                ),
                rows=(32_497, 4_062, 4_062),
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
        make=readers.read_intervals,
        files=_split_files(
            "yago11k/{}.txt",
            f"{_ATISE}/yago/{{}}.txt",
            sha1=(None, None, None),
            rows=(16_408, 2_050, 2_051),
        ),
        licence="YAGO: CC BY",
        source="Dasgupta et al. 2018 (HyTE), github.com/soledad921/ATISE; the publisher gives no checksum",
    ),
    "icews-500": Dataset(
        about="ICEWS 2014 by day, 500 actors, split by time; ids without names",
        make=readers.read_ids_and_hours,
        files=_split_files(
            "icews-500/{}.txt",
            f"{_EVOKG}/ICEWS_500/{{}}.txt",
            sha1=(
                "943749260a1908a79984eb9c5cfbc6778aba4cf8",
                "96e5a2a701eccea5bea1b022a8a36e2c2866443b",
                "752bcc17825e113ab6f19df17a5e03c4a6c0ac53",
            ),
            rows=(184_725, 32_292, 228_648),
        ),
        sizes=(500, 256, 365),
        licence=_ICEWS_TERMS,
        source="Know-Evolve (Trivedi et al. 2017), github.com/NamyongPark/EvoKG",
    ),
    "gdelt2012-countries": Dataset(
        about="GDELT 2012 by week, 220 countries and regions × 20 CAMEO roots; the nearest to the paper's GDELT",
        make=readers.read_matlab,
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
    "icews-schein": Dataset(
        about="ICEWS countries by month, 1995 to 2000: 72 months as in the paper, whose source it may be; "
        "counts=True weights facts by their events",
        make=readers.read_numpy_archive,
        files={
            "train": File(
                path="icews-schein/1995-2000-M.dat",
                sha1="bd9b08ed670449af02d39d96fd23d17176072e45",
                url="https://github.com/aschein/bptd/raw/master/dat/1995-2000-M.dat",
            )
        },
        licence=_ICEWS_TERMS,
        source="Schein et al. 2016, github.com/aschein/bptd",
    ),
    "icews-schein-2013": Dataset(
        about="ICEWS countries by month, 1995 to 2013; counts=True weights facts by their events",
        make=readers.read_numpy_archive,
        files={
            "train": File(
                path="icews-schein/data_compressed.npz",
                sha1="3bab0c48b27f675ccb7efb17b8d6c39a0751b0bf",
                url="https://github.com/aschein/bptf/raw/master/examples/ICEWS/dat/1995-2013-M/data_compressed.npz",
            )
        },
        licence=_ICEWS_TERMS,
        source="Schein et al. 2015, github.com/aschein/bptf",
    ),
    "icews-country-month": Dataset(
        about="ICEWS countries by month, 1991 to 2013, CAMEO roots 10 to 20; counts=True weights facts by their events",
        make=readers.read_counted,
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
        make=readers.read_static,
        files=_split_files(
            "static/fb15k-237/{}.txt",
            f"{_CONVE}/FB15k-237.tar.gz",
            member="{}.txt",
            sha1=(
                "64905fe4545b7f2f75454d0b6fd52dfdcab90ed4",
                "1eb92bf5af311b25748db1b5d85db39cb34ba2e8",
                "01f6b3bf2fdc68b4913e816ac859921b740d09ee",
            ),
            rows=(272_115, 17_535, 20_466),
        ),
        sizes=(14_541, 237, 1),
        licence="Freebase: CC BY 2.5",
        source="Toutanova and Chen 2015, github.com/TimDettmers/ConvE",
    ),
    "nations": _pykeen_dataset(
        "nations",
        about="relations of 14 nations, without time",
        sizes=(14, 55, 1),
        rows=(1_592, 199, 201),
        sha1=(
            "0cc3159d8575b7cf104373822aaf7bb6dce69cfc",
            "cff2dc60b1ca74596fbac326d20b8fd88a8e04e1",
            "2adc0ff73deeccc383928435cfc6c4e1ad93d27d",
        ),
    ),
    "umls": _pykeen_dataset(
        "umls",
        about="a medical semantic network, without time",
        sizes=(135, 46, 1),
        rows=(5_216, 652, 661),
        sha1=(
            "e18374ce247e459b388b74378c6f185248866585",
            "34b12e146f2bac5dc5b96f8e6fdbf08e95088dcf",
            "821261fdf02fe642879e64b00572b3529a1c7147",
        ),
    ),
    "kinships": _pykeen_dataset(
        "kinships",
        about="kinship terms of the Alyawarra, without time",
        sizes=(104, 25, 1),
        rows=(8_544, 1_068, 1_074),
        sha1=(
            "f4c26d1abb3e3f5aa98b18c29db021111674c745",
            "d2e83b1d9dc323c61ad7ca36b24061d89d7a42e4",
            "5f1781e9df270c3d56f1952458b7b687b3baefc4",
        ),
    ),
}
