"""`python -m paper`: every experiment leaves figures and a page, and committed pages follow from committed figures."""

from __future__ import annotations

import json
import re
import shlex
import sys
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from pathlib import Path

import pytest

import paper.__main__ as command
from command import run_main
from paper import as_of, costs, experiments, leaderboards, printed, projection, projection_page, rare, tables
from paper.experiments import EXPERIMENTS, reproduce, write_page
from paper.workspace import Workspace

NAMES = list(EXPERIMENTS)
RESULTS = Path(__file__).parents[2] / "docs" / "results"
COMMITTED = sorted(RESULTS.glob("*.json"))


@pytest.fixture
def run(monkeypatch, capsys):
    return partial(run_main, command.main, monkeypatch, capsys)


@pytest.fixture
def no_plots(monkeypatch):
    """Return the names of the plots that would have been drawn."""
    drawn: list[str] = []
    for module in (as_of, projection_page, rare):
        monkeypatch.setattr(module, "lines", lambda panels, path, **_: drawn.append(path.name))
    return drawn


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("this was computed already, or must not be computed")


def without(value, *keys):
    """Return nested results without some keys."""
    if isinstance(value, dict):
        return {key: without(item, *keys) for key, item in value.items() if key not in keys}
    return [without(item, *keys) for item in value] if isinstance(value, list | tuple) else value


def linked_plots(text: str) -> list[str]:
    return re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)


@pytest.mark.parametrize("file", COMMITTED, ids=lambda file: file.stem)
def test_committed_pages_follow_from_committed_figures(file, tmp_path, no_plots):
    found = json.loads(file.read_text(encoding="utf-8"))
    assert (found["experiment"], found["quick"]) == (file.stem, False)
    text = file.with_suffix(".md").read_text(encoding="utf-8")
    assert write_page(found, tmp_path).read_text(encoding="utf-8") == text
    assert linked_plots(text) == no_plots
    assert all((RESULTS / plot).read_bytes().startswith(b"\x89PNG") for plot in no_plots)


def test_every_experiment_has_committed_results():
    assert {file.stem for file in COMMITTED} == set(NAMES)


def test_the_runtimes_of_the_paper_page_follow_from_committed_figures():
    found = json.loads((RESULTS / "runtime.json").read_text(encoding="utf-8"))
    page = (RESULTS.parent / "paper.md").read_text(encoding="utf-8")
    assert costs.runtime_summary(found) in page
    assert costs.runtime_growth(found) in page


def test_one_experiment_by_command(run, tmp_path):
    code, out, error = run("parameters", "parameters", "--quick", "--dim", 3, "--out", tmp_path)
    assert code == 0, error
    assert out.split() == [str(tmp_path / "parameters.md")]
    found = json.loads((tmp_path / "parameters.json").read_text(encoding="utf-8"))
    assert found["dims"] == [3]
    assert shlex.split(found["command"]) == ["python", "-m", "paper", "parameters", "--quick", "--dim", "3"]
    text = (tmp_path / "parameters.md").read_text(encoding="utf-8")
    assert "**A quick run" in text
    check_tables(text)


def test_an_unknown_experiment_is_refused_before_any_file_is_written(run, tmp_path):
    code, out, error = run("parameters", "figure-9", "--quick", "--out", tmp_path / "new")
    assert (code, out, list(tmp_path.iterdir())) == (2, "", [])
    assert error == f"error: unknown experiment 'figure-9'; choose some of {', '.join(NAMES)}, or all\n"


def test_missing_matplotlib_is_reported_before_any_work(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(command, "reproduce", refuse)
    code, _, error = run("parameters", "--quick", "--out", tmp_path / "new")
    assert (code, list(tmp_path.iterdir())) == (2, [])
    assert error == "error: figures need matplotlib; install it with: pip install 'recollect[plots]'\n"


def test_runtime_has_its_own_sizes_and_dims(run, tmp_path):
    code, _, error = run("runtime", "--quick", "--dim", 3, "--out", tmp_path)
    assert code == 2
    assert "runtime measures the paper's sizes and dims" in error


@pytest.mark.long
def test_other_data_and_dims_replace_an_experiments_own(run, tmp_path):
    file, out = tmp_path / "some events.csv", tmp_path / "out"

    def reproduce_with(changed: int) -> dict:
        rows = [f"e{i % 7},r{i % 3},e{(i * i + changed) % 5},{2000 + i % 6}" for i in range(400)]
        file.write_text("subject,predicate,object,time\n" + "\n".join(rows) + "\n")
        code, printed_text, error = run(
            "as-of", "table-rare", "--quick", "--data", file, "--dim", "3", "--out", out, "--json"
        )
        assert code == 0, error
        found, rare_found = json.loads(printed_text)
        assert {row["dim"] for row in rare_found["rows"]} == {3}
        (record,) = found["records"]
        assert (record["sizes"]["entity"], record["settings"]["dim"]) == (7, 3)
        return found

    first = reproduce_with(0)
    assert without(reproduce_with(0), "date") == without(first, "date")
    found = reproduce_with(1)  # the file has changed, so stored results do not count
    assert found["records"][0]["auprc"] != first["records"][0]["auprc"]
    page = (out / "as-of.md").read_text(encoding="utf-8")
    assert linked_plots(page) == ["as-of-some-events.png"]
    file.unlink()
    assert write_page(found, tmp_path).read_text(encoding="utf-8") == page


@dataclass(frozen=True)
class Reproduction:
    """The results of all quick experiments."""

    out: Path
    reports: list[tuple[str, float]]

    def found(self, name: str) -> dict:
        return json.loads((self.out / f"{name}.json").read_text(encoding="utf-8"))

    def page(self, name: str) -> str:
        return (self.out / f"{name}.md").read_text(encoding="utf-8")

    def work_files(self) -> dict[Path, bytes]:
        return {file: file.read_bytes() for file in (self.out / ".work").rglob("*") if file.is_file()}


@pytest.fixture(scope="module")
def quick(tmp_path_factory) -> Reproduction:
    """Run all experiments once at small sizes."""
    out = tmp_path_factory.mktemp("reproduced")
    reports: list[tuple[str, float]] = []
    pages = list(reproduce(NAMES, out, quick=True, report=lambda *report: reports.append(report)))
    assert pages == [out / f"{name}.md" for name in NAMES]
    return Reproduction(out, reports)


def check_tables(text: str) -> None:
    """Assert that every Markdown table is rectangular and has no empty cell."""
    blocks = re.findall(r"(?:^\|.*\n?)+", text, flags=re.MULTILINE)
    assert blocks
    for block in blocks:
        head, rule, *rows = [line.strip("|\n").split("|") for line in block.splitlines()]
        assert {cell.strip() for cell in rule} == {"---", "---:"}
        assert rows
        assert {len(cells) for cells in (rule, *rows)} == {len(head)}
        assert all(cell.strip() for cells in (head[1:], *rows) for cell in cells)


@pytest.mark.long
@pytest.mark.xdist_group("reproduce")  # the fixture runs once, not in every worker
class TestQuickReproduction:
    """All experiments at small sizes."""

    @pytest.mark.parametrize("name", NAMES)
    def test_every_experiment_leaves_figures_and_a_page(self, quick, name, tmp_path):
        found, text = quick.found(name), quick.page(name)
        assert (found["experiment"], found["quick"]) == (name, True)
        assert {"recollect", "torch", "python"} <= found["versions"].keys()
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", found["date"])
        assert text.startswith(f"# {EXPERIMENTS[name].title}\n\n**A quick run")
        assert f"`python -m paper {name} --quick` on {found['date']}" in text
        assert not re.search(r"\b(nan|inf|None)\b", text)
        check_tables(text)
        assert write_page(found, tmp_path).read_text(encoding="utf-8") == text  # from the JSON alone
        assert {file.name for file in tmp_path.iterdir()} == {f"{name}.md", *linked_plots(text)}

    def test_plots_show_coloured_curves(self, quick):
        from matplotlib.image import imread

        plots = [plot for name in NAMES for plot in linked_plots(quick.page(name))]
        assert sorted(plots) == sorted(file.name for file in quick.out.glob("*.png"))
        assert len(plots) == 5
        for plot in plots:
            pixels = imread(quick.out / plot)[..., :3]
            assert min(pixels.shape[:2]) > 300
            assert ((pixels.max(axis=2) - pixels.min(axis=2)) > 0.3).mean() > 0.003

    @pytest.mark.parametrize("data", ["icews", "gdelt"])
    def test_a_table_has_the_papers_figures_next_to_ours(self, quick, data):
        name, theirs = f"table-{data}", {"icews": printed.ICEWS, "gdelt": printed.GDELT}[data]
        rows = {row["model"]: row for row in quick.found(name)["rows"]}
        assert rows.keys() == theirs.keys()
        for model, row in rows.items():
            (line,) = re.findall(rf"^\| {printed.SHOWN[model]} \| .*/.*$", quick.page(name), flags=re.MULTILINE)
            pairs = [(float(a), float(b)) for a, b in re.findall(r"(\S+) / \*\*(\S+)\*\*", line)]
            assert [a for a, _ in pairs] == [*theirs[model]["entity"], *theirs[model]["predicate"]]
            columns = product(("entity", "predicate"), tables.METRICS)
            for (_, ours), (slot, metric) in zip(pairs, columns, strict=True):
                scale, digits = (1, 3) if metric == "mrr" else (100, 2)
                assert ours == round(scale * row[slot][metric], digits)

    def test_a_second_run_computes_nothing(self, quick, run, monkeypatch):
        before, work_files = {name: (quick.found(name), quick.page(name)) for name in NAMES}, quick.work_files()
        monkeypatch.setattr(Workspace, "train", refuse)
        for module in (costs, tables, rare, projection, as_of):
            for name in {"TrainingRun", "Trainer", "evaluate", "project"} & vars(module).keys():
                monkeypatch.setattr(module, name, refuse)
        code, out, _ = run("all", "--quick", "--out", quick.out, "--json")
        assert code == 0
        assert json.loads(out) == [quick.found(name) for name in NAMES]
        for name, (found, text) in before.items():
            assert without(quick.found(name), "date") == without(found, "date")
            assert quick.page(name).replace(quick.found(name)["date"], "") == text.replace(found["date"], "")
        assert quick.work_files() == work_files

    def test_reported_shares_grow_from_none_to_all(self, quick):
        shares = [share for _, share in quick.reports]
        assert 0 <= min(shares) < 0.01
        assert 0.9 < max(shares) <= 1 + 1e-9
        assert all(later >= earlier - 1e-9 for earlier, later in pairwise(shares))

    def test_slots_that_are_not_evaluated_are_not_reported(self, quick):
        rows = quick.found("benchmark-icews05-15")["rows"]
        assert "predicate" in rows[0]["figures"]
        assert "time" not in rows[0]["figures"]
        static = next(row for row in quick.found("ablation-icews14")["rows"] if row["form"] == "semantic")
        assert "time" not in static["figures"]


def test_a_line_of_a_leaderboard_is_the_mean_over_its_seeds():
    found = json.loads((RESULTS / "benchmark-icews14.json").read_text(encoding="utf-8"))
    row = found["rows"][0]
    again = json.loads(json.dumps(row)) | {"seed": 1, "valid_mrr": row["valid_mrr"] + 0.2}
    row["figures"]["entity"]["mrr"], again["figures"]["entity"]["mrr"] = 0.25, 0.75
    settings = found["settings"] | {"entries": [found["settings"]["entries"][0] | {"seeds": [0, 1]}]}
    page = leaderboards.page({**found, "settings": settings, "rows": [row, again]}, Path())
    line = next(line for line in page.splitlines() if line.startswith("| ConT"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[3] == f"**0.500 ± {2**-1.5:.3f}**"
    assert cells[7] == f"{row['valid_mrr'] + 0.1:.3f}"
    assert cells[-1] == "2"


def test_experiments_estimate_their_duration():
    assert all(experiment.minutes > 0 for experiment in experiments.EXPERIMENTS.values())
