"""Panels of curves show every point, on linear and logarithmic scales."""

from __future__ import annotations

import math

from paper.plots import Line, lines


def test_points_on_a_logarithmic_axis_fill_the_panel(drawn, tmp_path):
    curve = Line("ConT", [10, 40, 200], [0.2, 0.5, 0.9])
    lines({"a": [curve], "b": [curve]}, tmp_path / "a.png", xlabel="dim", ylabel="MRR", log_x=True)
    for axes in drawn[0].axes:
        low, high = axes.get_xlim()
        assert low <= 10 < 200 <= high
        assert math.log(200 / 10) / math.log(high / low) > 0.8
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["10", "40", "200"]


def test_points_on_a_linear_axis_fill_the_panel_or_the_given_limits(drawn, tmp_path):
    curve = Line("ConT", [10, 40, 200], [0.2, 0.5, 0.9])
    lines({"a": [curve]}, tmp_path / "a.png", xlabel="dim", ylabel="MRR")
    lines({"a": [curve]}, tmp_path / "a.png", xlabel="dim", ylabel="MRR", xlim=(0, 1000))
    low, high = drawn[0].axes[0].get_xlim()
    assert 0 <= low <= 10 < 200 <= high < 250
    assert drawn[1].axes[0].get_xlim() == (0, 1000)


def test_panels_share_one_legend_and_the_rest_of_the_grid_is_empty(drawn, tmp_path):
    first, second = Line("ConT", [1, 2], [0.1, 0.2]), Line("Tree", [1, 2], [0.3, 0.4], spread=[0.1, 0.1], dashed=True)
    lines({"a": [first, second], "b": [second], "c": [first]}, tmp_path / "a.png", xlabel="dim", ylabel="MRR")
    (figure,) = drawn
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ConT", "Tree"]
    assert [axes.get_visible() for axes in figure.axes] == [True, True, True, False]
    assert figure.axes[0].lines[1].get_linestyle() == "--"
    assert len(figure.axes[0].collections) == 1
