"""The documents are true: their code runs as printed."""

from __future__ import annotations

import re
import shlex
import sys
import zipfile
from itertools import product
from pathlib import Path

import pytest
import torch

from conftest import SIZES, generator, own_scores, random_facts
from recollect import current, dataset, ends, rare, starts
from recollect.cli.main import main
from recollect.models.equation import Equation
from recollect.models.tensor_model import TensorModel

ROOT = Path(__file__).parents[1]


def blocks(name: str, language: str) -> list[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return [content for told, content in found if told == language]


@pytest.fixture
def events(tmp_path, monkeypatch) -> Path:
    """The file that the README reads."""
    names = ["Turkey", "Syria", "Iran", "China"]
    rows = [
        f"{a},{p},{b},2014-{m:02d}" for a, b in product(names, names) for p in ("Fight", "Consult") for m in (3, 7, 12)
    ]
    (tmp_path / "events.csv").write_text("subject,predicate,object,time\n" + "\n".join(rows) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_readme_python(events):
    (code,) = blocks("README.md", "python")
    exec(compile(code, "README.md", "exec"), {})
    assert (events / "world.memory" / "memory.json").is_file()


def test_readme_commands(events, monkeypatch, capsys):
    commands = [line.partition("#")[0] for block in blocks("README.md", "") for line in block.splitlines()]
    commands = [shlex.split(line) for line in commands if line.startswith("recollect ")]
    assert len(commands) == 11
    for words in commands:
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as stopped:
            main()
        assert not stopped.value.code, (words, capsys.readouterr().err)


def test_readme_links():
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert (ROOT / target).exists(), target


def test_data_page(events, real_data, monkeypatch, capsys):
    """Every command and every line of Python of docs/data.md, on real files."""
    (events / "icews").symlink_to(real_data / "icews-raw")
    (events / "gdelt").mkdir()
    with zipfile.ZipFile(events / "gdelt" / "sample.zip", "w") as archive:
        archive.write(real_data / "gdelt-raw" / "20191024143000.export.CSV", "sample.CSV")
    commands = [line.partition(" #")[0] for block in blocks("docs/data.md", "") for line in block.splitlines()]
    commands = [shlex.split(line) for line in commands if line.startswith("recollect ")]
    assert len(commands) == 11
    for words in commands:
        # the whole of ICEWS14 takes minutes to learn
        shortened = [*words, "--epochs", "1", "--dim", "4"] if words[1:3] == ["train", "icews14"] else words
        monkeypatch.setattr(sys, "argv", shortened)
        with pytest.raises(SystemExit) as stopped:
            main()
        assert not stopped.value.code, (words, capsys.readouterr().err)
    exec(compile("\n".join(blocks("docs/data.md", "python")), "docs/data.md", "exec"), {})


def test_data_page_figures(real_data):
    """The table of views tells what the datasets give."""
    text = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    for column, name in enumerate(("icews-countries", "gdelt2012-countries", "wikidata12k")):
        graph = dataset(name)
        figures = {"(all)": len(graph.facts), "`NAME/starts`": len(starts(graph)), "`NAME/ends`": len(ends(graph))}
        figures["`NAME/rare`"] = len(rare(graph))
        chi = current(graph)
        for view, figure in (figures | {"`NAME/current`": f"{len(chi):,}, {len(chi.true()):,} True"}).items():
            (row,) = [line for line in text.splitlines() if line.startswith(f"| {view} |")]
            told = row.strip("| ").split(" | ")[2 + column]
            assert told == (figure if isinstance(figure, str) else f"{figure:,}")


def test_contributing_adds_a_model():
    model_code, oracle_code = blocks("CONTRIBUTING.md", "python")
    space = {"TensorModel": TensorModel, "Equation": Equation, "product": product}
    exec(compile(model_code + oracle_code, "CONTRIBUTING.md", "exec"), space)
    for form in ("episodic", "semantic"):
        model = space["Turn"](SIZES, 3, form=form, dtype=torch.float64, generator=generator())
        facts = random_facts(8)
        weights = {name: value.tolist() for name, value in model.state_dict().items()}
        rows = [(s, p, o, t if form == "episodic" else None) for s, p, o, t in facts.ids.tolist()]
        expected = torch.tensor([space["turn"](weights, *row) for row in rows], dtype=torch.float64)
        torch.testing.assert_close(model.score(facts).detach(), expected)
        for slot in model.indicator.slots:
            torch.testing.assert_close(own_scores(model, facts, slot).detach(), expected)


def test_the_picture_of_the_house_shows_every_file():
    picture = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split("```")[1]
    for path in (ROOT / "src" / "recollect").rglob("*.py"):
        inside = path.parent.name
        if path.name == "__init__.py":
            continue
        if inside == "recollect":
            assert path.name in picture
        else:
            assert path.stem in picture.split(f"{inside}/ (")[1].split(")")[0]
