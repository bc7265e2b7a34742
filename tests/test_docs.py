"""The documents are true: their code and commands run, their examples work, their options exist.

Published datasets are replaced by a small graph, and trainings are shortened; tests marked `long` use the real files.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import polars as pl
import pytest
import typer.main
import uvicorn

import recollect
from paper.__main__ import app as paper_app
from recollect import EpisodicGraph, current, dataset, ends, rare, split_randomly, starts
from recollect.cli.main import app
from recollect.io import datasets

ROOT = Path(__file__).parents[1]
FOLDERS = ("docs", "docs/tutorials", "docs/concepts", "docs/how-to", "docs/reference")  # docs/results has experiments
PAGES = [
    *("README.md", "CONTRIBUTING.md"),
    *(f"{folder}/{path.name}" for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.md"))),
]
HOW_TO = [page for page in PAGES if page.startswith("docs/how-to/")]  # whose commands run after the changes they show
RUNNABLE = [page for page in PAGES if page not in HOW_TO]  # whose commands run as they are
ASKING_A_SERVICE = ("docs/tutorials/serve.md",)  # whose Python asks one: tests/serve/test_tutorial.py runs it
SHORTER = {"--dim": "4", "--budget": "0.1"}


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[tuple[str, str]]:
    """Return (language, content) of every fenced block of a page."""
    return re.findall(r"^```(\S*)\n(.*?)^```$", text_of(page), flags=re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[list[str]]:
    """Return the words of every command of a block; comments are left out, lines that end in a backslash joined."""
    lines = text.replace("\\\n", " ").splitlines()
    return [words for words in (shlex.split(line, comments=True) for line in lines) if words]


def page_commands(page: str) -> list[list[str]]:
    return [words for language, content in blocks(page) if language == "" for words in commands(content)]


# --- stand-ins ---


def small_icews() -> EpisodicGraph:
    """Return a graph with the labels and the grain of ICEWS14 that the pages mention."""
    names, predicates = ["Turkey", "Syria", "Iran", "China", "France"], ["Make a visit", "Consult", "Fight"]
    triples = [triple for triple in product(names, predicates, names) if triple[0] != triple[2]]
    facts = [(*triple, f"2014-{month:02}-01") for triple in triples for month in range(1, 13, 2)]
    frame = pl.DataFrame(facts, schema=["subject", "predicate", "object", "time"], orient="row")
    return split_randomly(recollect.read(frame, name="icews14"))


def write_tables(folder: Path) -> None:
    """Write the files that the pages read: tables, raw ICEWS and raw GDELT events."""
    write_facts(folder)
    event = ["2018-10-04", "A (USA)", "Social", "USA", "Visit", "042", "1.9", "B (RUS)", "Social", "RUS", *["x"] * 9]
    lines = [["Event ID", "Event Date", *["x"] * 18], *([str(i), *event] for i in range(3))]
    (folder / "icews").mkdir()
    (folder / "icews" / "events.tab").write_text("\n".join("\t".join(line) for line in lines) + "\n")
    (folder / "gdelt").mkdir()
    with zipfile.ZipFile(folder / "gdelt" / "sample.zip", "w") as archive:
        archive.writestr("sample.CSV", "".join(gdelt_row(i) for i in range(300)))


def write_facts(folder: Path) -> None:
    """Write the tables of facts that the pages read: ministers.csv, events.csv and new.csv."""
    ministers = next(content for language, content in blocks("docs/first-hour.md") if language == "text")
    (folder / "ministers.csv").write_text(ministers, encoding="utf-8")
    names = ["Turkey", "Syria", "Iran", "China"]
    rows = [
        f"{a},{predicate},{b},2014-{month:02}"
        for a, b in product(names, names)
        for predicate in ("Fight", "Consult")
        for month in (3, 7, 12)
    ]
    (folder / "events.csv").write_text("subject,predicate,object,time\n" + "\n".join(rows) + "\n")
    (folder / "new.csv").write_text("subject,predicate,object,time\nTurkey,Fight,Norway,2015-01\n")


def gdelt_row(number: int) -> str:
    """Return a row of 58 columns: id, date and parts of it, two actors, event codes, and what is not read."""
    actors = ("USA", "RUS", "CHN", "FRA")
    row = [""] * 58
    row[0], row[1] = str(number), f"201203{1 + number % 28:02}"
    for start, actor in ((5, actors[number % 4]), (15, actors[(number // 4 + number % 3) % 4])):
        row[start], row[start + 1], row[start + 2] = actor, {"USA": "UNITED STATES"}.get(actor, actor), actor
    root = ("04", "04", "01", "19")[number % 7 % 4]
    row[26], row[27], row[28] = f"{root}0", f"{root}0", root
    return "\t".join(row) + "\n"


@pytest.fixture
def page_folder(tmp_path, monkeypatch) -> Path:
    """A folder with the files that the pages read; published datasets are a small graph."""
    write_tables(tmp_path)
    monkeypatch.chdir(tmp_path)
    graphs = {"world": dataset("world", countries=6, years=2)}

    def stand_in(name: str, **options: object) -> EpisodicGraph:
        base, _, view = name.partition("/")
        graph = graphs.setdefault(base, small_icews() if base not in graphs else graphs[base])
        return datasets.VIEWS[view](graph) if view else graph

    monkeypatch.setattr(datasets, "dataset", stand_in)
    monkeypatch.setattr(recollect, "dataset", stand_in)
    monkeypatch.setattr(sys, "stdin", io.StringIO("help\n"))  # of `recollect ask`
    monkeypatch.setattr(uvicorn.Server, "run", lambda server, **options: None)  # of `recollect serve`
    return tmp_path


def shortened(words: list[str]) -> list[str]:
    """Return a command with fewer epochs and smaller dims; neither datasets nor names of codes are downloaded."""
    if words[1:3] == ["data", "fetch"]:
        return [*words[:3], "world"]
    if words[1:3] == ["data", "build"]:
        return [*words, "--predicates", "root"]
    if words[1] not in ("train", "search"):
        return words
    smaller = [word for option, value in SHORTER.items() if option in words for word in (option, value)]
    return [*words, "--epochs", "1", *smaller]


# --- every page ---


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_code_commands_a_change_or_text(page):
    for language, content in blocks(page):
        assert language in ("", "python", "diff", "text"), language
        if language == "":
            programs = {words[0] for words in commands(content)}
            assert programs <= {"recollect", "make", "python"}, "tag a block that is no command as text"


@pytest.mark.parametrize("page", [page for page in RUNNABLE if page_commands(page)])
def test_every_command_of_a_page_runs(run, page_folder, page):
    for words in page_commands(page):
        if words[0] == "recollect":
            code, _, error = run(*shortened(words)[1:])
            assert code == 0, (words, error)


def pages_with_python() -> list[str]:
    found = [page for page in PAGES if any(language == "python" for language, _ in blocks(page))]
    return [page for page in found if page not in ASKING_A_SERVICE]


@pytest.mark.parametrize("page", pages_with_python())
def test_every_line_of_python_of_a_page_runs(page_folder, page):
    code = "\n".join(content for language, content in blocks(page) if language == "python")
    exec(compile(code, page, "exec"), {})


@pytest.mark.parametrize("page", PAGES)
def test_every_make_target_exists(page):
    targets = set(re.findall(r"^([a-z0-9-]+):", text_of("Makefile"), flags=re.MULTILINE))
    inline = re.findall(r"`make ([a-z0-9-]+)`", text_of(page))
    listed = [words[1] for words in page_commands(page) if words[0] == "make"]
    assert {*inline, *listed} <= targets


def options_of(command: object) -> Iterator[str]:
    """Yield the options of a command and of the commands below it."""
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    for inner in getattr(command, "commands", {}).values():
        yield from options_of(inner)


@pytest.mark.parametrize("page", [page for page in PAGES if page != "docs/performance.md"])
def test_every_option_that_a_page_mentions_exists(page):
    known = {*options_of(typer.main.get_command(app)), "--help"}
    if "python -m paper" in text_of(page):
        known |= {*options_of(typer.main.get_command(paper_app))}
    spans = [span for span in re.findall(r"`([^`\n]+)`", text_of(page)) if "python -m" not in span]
    mentioned = {option for span in spans for option in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", span)}
    assert mentioned <= known


@pytest.mark.parametrize("page", PAGES)
def test_every_link_has_a_target(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text_of(page)):
        assert (ROOT / page).parent.joinpath(target).exists(), target


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_a_page_names_exists(page):
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    defined = {name for source in sources for name in re.findall(r"^def (test_\w+)", source, flags=re.MULTILINE)}
    assert set(re.findall(r"`(test_\w+)`", text_of(page))) <= defined


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_commands_of_the_paper_and_the_benchmarks_run(page, tmp_path):
    for words in page_commands(page):
        if words[:2] != ["python", "-m"] or words[2] not in ("paper", "benchmarks"):
            continue
        if words[2] == "benchmarks" and "compare" in words:
            words = [*words[: words.index("compare")], "compare", str(ROOT), str(ROOT), "--repeats", "1"]
        out = ["--out", str(tmp_path)] if "--out" in words or words[2] == "paper" else []
        quick = [] if "--quick" in words else ["--quick"]
        done = subprocess.run([sys.executable, *words[1:], *quick, *out], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, (words, done.stderr)


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_commands_of_several_processes_run(page, tmp_path):
    write_tables(tmp_path)
    for words in page_commands(page):
        if words[:3] == ["python", "-m", "torch.distributed.run"]:
            command = [sys.executable, *words[1:], "--epochs", "1"]
            environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
            done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, (words, done.stderr)


# --- docs/data.md on real files ---


@pytest.mark.long
def test_the_data_page_on_real_files(run, tmp_path, real_data, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_facts(tmp_path)
    (tmp_path / "icews").symlink_to(real_data / "icews-raw")
    (tmp_path / "gdelt").mkdir()
    with zipfile.ZipFile(tmp_path / "gdelt" / "sample.zip", "w") as archive:
        archive.write(real_data / "gdelt-raw" / "20191024143000.export.CSV", "sample.CSV")
    for words in page_commands("docs/data.md"):
        if words[0] == "recollect":
            is_training = words[1] == "train"
            code, _, error = run(
                *words[1:], *(["--epochs", 1, "--model", "distmult", "--dim", 4] if is_training else [])
            )
            assert code == 0, (words, error)
    code = "\n".join(content for language, content in blocks("docs/data.md") if language == "python")
    exec(compile(code, "docs/data.md", "exec"), {})


@pytest.mark.long
def test_the_table_of_views_has_the_figures_of_the_datasets(real_data):
    text = text_of("docs/data.md")
    for column, name in enumerate(("icews-countries", "gdelt2012-countries", "wikidata12k")):
        graph = dataset(name)
        state = current(graph)
        expected = {
            "(all)": f"{len(graph.facts):,}",
            "`NAME/starts`": f"{len(starts(graph)):,}",
            "`NAME/ends`": f"{len(ends(graph)):,}",
            "`NAME/rare`": f"{len(rare(graph)):,}",
            "`NAME/current`": f"{len(state):,}, {len(state.true()):,} True",
        }
        for view, figure in expected.items():
            (row,) = [line for line in text.splitlines() if line.startswith(f"| {view} |")]
            assert row.strip("| ").split(" | ")[2 + column] == figure


# --- CONTRIBUTING and the how-to pages ---


def test_the_glossary_has_no_word_twice():
    rows = re.findall(r"^\| (.+?) \|", text_of("CONTRIBUTING.md").split("## Glossary")[1], flags=re.MULTILINE)
    words = [word for row in rows[2:] for word in row.split(", ")]
    assert len(words) > 40
    assert len(words) == len(set(words))


def examples() -> dict[str, list[tuple[str, str]]]:
    """Return the blocks of every how-to page by the heading of its change."""
    headings = {page: re.search(r"^### (The change: .*)$", text_of(page), flags=re.MULTILINE) for page in HOW_TO}
    return {f"{page}, {heading[1]}": blocks(page) for page, heading in headings.items() if heading}


def apply_change(change: str, root: Path) -> Path:
    """Change a file by `+++ file` and hunks after `@@`; return the file. What a hunk keeps or removes occurs once."""
    first, *hunks = re.split(r"^@@\n", change, flags=re.MULTILINE)
    path = root / first.removeprefix("+++ ").strip()
    text = path.read_text(encoding="utf-8")
    for hunk in hunks:
        lines = hunk.splitlines(keepends=True)
        before = "".join(line[1:] or "\n" for line in lines if not line.startswith("+"))
        after = "".join(line[1:] or "\n" for line in lines if not line.startswith("-"))
        assert text.count(before) == 1, (str(path), before)
        text = text.replace(before, after)
    path.write_text(text, encoding="utf-8")
    return path


NUMBERS = {"one": 1, "two": 2}
RUN_COMMANDS = """
import sys

from recollect.cli.main import main

for words in COMMANDS:
    sys.argv = words
    try:
        main()
    except SystemExit as stopped:
        assert not stopped.code, words
"""


@pytest.fixture
def changed_copy(tmp_path) -> Path:
    """A copy of the repository with the changes of all worked examples, each to as many files as its heading says."""
    for folder in ("src", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder)  # with the compiled kernels
    for heading, found in examples().items():
        changed = {apply_change(content, tmp_path) for language, content in found if language == "diff"}
        assert len(changed) == NUMBERS[heading.split(": ")[1].split()[0]], heading
    return tmp_path


def test_every_how_to_page_has_one_change():
    assert len(examples()) == len(HOW_TO) >= 4


def example_commands(program: str) -> list[list[str]]:
    """Return the commands of the worked examples that begin with a program."""
    found = [content for example in examples().values() for language, content in example if language == ""]
    return [words for content in found for words in commands(content) if words[0] == program]


def run_python(root: Path, *words: str) -> str:
    """Run the interpreter on a copy of the repository; return what it prints."""
    environment = os.environ | {"PYTHONPATH": f"{root / 'src'}:{root / 'tests'}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stdout + done.stderr)
    return done.stdout


def test_the_commands_of_the_worked_examples_run(changed_copy):
    output = run_python(changed_copy, "-c", f"COMMANDS = {example_commands('recollect')!r}\n{RUN_COMMANDS}")
    for word in ("turn", "spaced", "rate_factor"):
        assert word in output


@pytest.mark.long
def test_the_contract_tests_of_the_worked_examples_pass(changed_copy):
    (words,) = example_commands("python")
    assert " passed" in run_python(changed_copy, *words[1:], "-p", "no:cacheprovider", "-n", "0", "-q")


# --- docs/architecture.md ---


def test_the_folders_of_the_architecture_are_those_of_the_package():
    (picture,) = [content for language, content in blocks("docs/architecture.md") if language == "text"]
    listed = set(re.findall(r"^  (\w+)/", picture, flags=re.MULTILINE))
    assert listed == {path.parent.name for path in (ROOT / "src" / "recollect").glob("*/__init__.py")}
