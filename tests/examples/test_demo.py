"""`python -m examples.demo` answers its questions and writes a report, with and without matplotlib."""

from __future__ import annotations

import pytest
import typer

from command import run_main
from examples import demo
from recollect import UserError
from recollect.io import plots


@pytest.fixture
def run(monkeypatch, capsys):
    return lambda *words: run_main(lambda: typer.run(demo.demo), monkeypatch, capsys, *words)


@pytest.fixture
def quick_demo(monkeypatch):
    """Let the demonstration learn a smaller world for two epochs."""
    from recollect.io import datasets

    whole = datasets.dataset
    monkeypatch.setattr(datasets, "dataset", lambda name, seed: whole(name, countries=8, years=3, seed=seed))
    monkeypatch.setattr(demo, "SETTINGS", {"epochs": 2, "validate_every": 1})


def test_the_demo_writes_a_report_with_figures(run, quick_demo, tmp_path):
    code, out, error = run("--out", tmp_path)
    assert code == 0, error
    for word in ("Who?", "What?", "Whom?", "When?", "✓ true", "Filtered ranks of"):
        assert word in out
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    for part in ("## Questions about withheld facts", "| entity |", "fact-over-time.png", "## Now"):
        assert part in text
    for name in ("report.md", "learning.png", "fact-over-time.png"):
        assert (tmp_path / name).stat().st_size > 1000


def test_without_matplotlib_the_report_has_no_figures(run, quick_demo, tmp_path, monkeypatch):
    def missing():
        raise UserError("figures need matplotlib")

    monkeypatch.setattr(plots, "figure_class", missing)
    code, _, error = run("--out", tmp_path)
    assert code == 0
    assert "the report has no figures: figures need matplotlib" in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.md", "world.memory", "world.memory.journal"]
    assert ".png" not in (tmp_path / "report.md").read_text(encoding="utf-8")
