"""The README is one screen, and its figures are those of the pages that it links to."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
FIGURES = re.findall(r"^\| (.+?) \| \*\*(.+?)\*\* \| \[`(.+?)`\]\((.+?)\) \|$", TEXT, flags=re.MULTILINE)


def test_the_readme_is_one_screen_with_one_picture_and_one_snippet():
    assert len(TEXT.splitlines()) <= 70
    assert len(re.findall(r"^!\[|<img", TEXT, flags=re.MULTILINE)) == 1
    assert TEXT.count("```python\n") == 1


def test_the_readme_begins_with_the_two_commands():
    first = re.search(r"^```\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)
    assert first is not None
    assert re.findall(r"^make (\w+)", first[1], flags=re.MULTILINE) == ["demo", "test"]


def test_every_number_of_the_three_figures_is_on_the_page_that_it_links_to():
    assert len(FIGURES) == 3
    for sentence, figure, _, page in FIGURES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for number in (figure, *re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])", re.sub("since 20.. ?", "", sentence))):
            assert re.search(rf"(?<![\d.,]){re.escape(number)}(?!\d|[.,]\d)", text), (page, number)


def test_every_figure_names_the_script_that_made_it():
    for _, _, command, page in FIGURES:
        assert f"`{command}" in (ROOT / page).read_text(encoding="utf-8").replace("\npython", "\n`python")
