"""The figure of growth has a panel per task and axis and a fitted line per model."""

from __future__ import annotations

import pytest

from benchmarks.plots import cost_growth


def test_the_fitted_line_passes_through_exact_powers(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path: figures.append(figure))
    shared = {"task": "train", "axis": "facts", "model": "cont", "exponent": 1.5}
    points = [{**shared, "size": size, "seconds": 2e-3 * size**1.5} for size in (10, 100, 1000)]
    cost_growth([*points, {**points[0], "task": "rank"}], tmp_path / "growth.png")
    train, rank = figures[0].axes
    measured, fitted = train.lines
    assert fitted.get_ydata() == pytest.approx(measured.get_ydata())
    assert train.get_xscale() == train.get_yscale() == "log"
    assert rank.get_ylabel() == "seconds, rank"
