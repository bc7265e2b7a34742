"""Figures show the data they are given, and a figure that cannot be drawn is refused before any work."""

from __future__ import annotations

import sys

import polars as pl
import pytest

from recollect import UserError
from recollect.graph.describe import describe
from recollect.io.plots import bars, check_figure, fact_over_time, graph_overview, learning_curves


def test_learning_curves_show_loss_and_the_best_validation(drawn, tmp_path):
    mrr = [None, 0.25, 0.5, None, 0.375]
    history = [{"epoch": i + 1, "loss": 1 / (i + 1), "mrr": mrr[i]} for i in range(5)]
    learning_curves(history, tmp_path / "a.png")
    loss, validation = drawn[0].axes
    assert loss.lines[0].get_ydata().tolist() == [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5]
    assert validation.lines[0].get_xdata().tolist() == [2, 3, 5]
    assert [text.get_text() for text in validation.texts] == ["0.500"]


def test_learning_curves_need_no_validation(drawn, tmp_path):
    learning_curves([{"epoch": 1, "loss": 2.0, "mrr": None}], tmp_path / "a.png")
    assert len(drawn[0].axes) == 1


def test_a_fact_over_time_has_its_probabilities_and_the_times_it_holds(drawn, tmp_path):
    table = pl.DataFrame({"time": [f"200{i}" for i in range(5)], "probability": [0.1, 0.9, 0.8, 0.2, 0.1]})
    fact_over_time(table, {"2001", "2002"}, "a fact", tmp_path / "a.png")
    (axes,) = drawn[0].axes
    assert axes.lines[0].get_ydata().tolist() == [0.1, 0.9, 0.8, 0.2, 0.1]
    shaded = axes.patches[0].get_data()
    assert shaded.values.tolist() == [0, 1, 1, 0, 0]
    assert shaded.edges.tolist() == [-0.5, 0.5, 1.5, 2.5, 3.5, 4.5]


def test_the_overview_of_a_graph_shows_all_of_its_statistics(drawn, tmp_path, small_world):
    about = describe(small_world)
    graph_overview(about, tmp_path / "a.png")
    over_time, predicates, entities, lengths = drawn[0].axes
    assert over_time.patches[0].get_data().values.tolist() == about["over_time"]
    assert [bar.get_width() for bar in predicates.patches] == list(about["busiest_predicates"].values())
    assert [bar.get_width() for bar in entities.patches] == list(about["busiest_entities"].values())
    assert lengths.lines[0].get_ydata().tolist() == about["run_lengths"]
    assert lengths.get_xscale() == lengths.get_yscale() == "log"


def test_odd_labels_are_drawn_as_text(drawn, tmp_path, small_world):
    about = describe(small_world) | {"name": "$x$", "busiest_entities": {"$\\frac$": 3, "y" * 100: 1}}
    graph_overview(about, tmp_path / "a.png")
    labels = [label.get_text() for label in drawn[0].axes[2].get_yticklabels()]
    assert labels == [r"\$\frac\$", "y" * 31 + "…"]


def test_bars_are_sorted_by_length(drawn, tmp_path):
    bars({"learning_rate": 0.2, "dropout": 0.7, "penalty": 0.1}, "title", "importance", tmp_path / "a.png")
    (axes,) = drawn[0].axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["penalty", "learning rate", "dropout"]
    assert [bar.get_width() for bar in axes.patches] == [0.1, 0.2, 0.7]


def test_a_figure_is_saved(tmp_path):
    bars({"a": 1.0}, "title", "label", tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("name", "message"), [("a.gif", "ends in .png, .svg or .pdf"), ("no/a.png", "is no folder")])
def test_a_figure_that_cannot_be_drawn_is_refused(tmp_path, name, message):
    check_figure(tmp_path / "a.png")
    with pytest.raises(UserError, match=message):
        check_figure(tmp_path / name)


def test_without_matplotlib_the_error_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UserError, match=r"figures need matplotlib; install it with: pip install 'recollect\[plots\]'"):
        check_figure(tmp_path / "a.png")
