"""The site of the documents: every link leads somewhere, every page is in the navigation."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
NOT_IN_NAVIGATION = {"results"}  # its overview is, and links to all of its pages


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "docs"
    runpy.run_path(str(ROOT / "docs" / "prepare.py"))["prepare"](folder)
    return folder


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """Yield (file, anchor) of every link of a page to another file or to itself; code is left out."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target, anchor in re.findall(r"\]\(([^)\s#]*)(?:#([^)\s]*))?\)", text):
        if "://" not in target:
            yield (page.parent / target).resolve() if target else page, anchor


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as Python-Markdown makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "") for heading in headings]
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", text.lower()).strip()) for text in plain}


def test_every_link_leads_to_a_page_and_a_heading_of_it(built):
    for page in built.rglob("*.md"):
        for file, anchor in links(page):
            assert file.is_file(), (page.name, file)
            assert not anchor or anchor in anchors(file), (page.name, file.name, anchor)


def test_the_icons_of_the_theme_are_those_that_both_builders_have():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    icons = re.findall(r"icon: ([\w/-]+)", text)
    assert icons
    assert all(icon.startswith("material/") for icon in icons)


def test_code_in_tables_has_no_backslash_before_a_bar(built):
    rows = re.findall(r"^\|.*$", (built / "concepts" / "models.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert any("`s:i p:j o:k t:l | lijk`" in row for row in rows)
    for page in built.rglob("*.md"):
        for row in re.findall(r"^\|.*$", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
            assert not any("\\|" in code for code in re.findall(r"`[^`]*`", row)), (page.name, row)


def test_every_page_is_in_the_navigation(built):
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    listed = set(_pages(settings["nav"]))
    there = {page.relative_to(built).as_posix() for page in built.rglob("*.md")}
    assert listed <= there
    assert {page for page in there - listed if page.split("/")[0] not in NOT_IN_NAVIGATION} == set()


def _pages(entries: list[dict]) -> Iterator[str]:
    for entry in entries:
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                yield from _pages(value)


def test_every_public_name_is_in_the_reference(built):
    import recollect

    text = "".join(page.read_text(encoding="utf-8") for page in (built / "reference").glob("*.md"))
    assert {name for name in recollect.__all__ if f"::: recollect.{name}\n" not in text + "\n"} == set()


# --- llms.txt ---

LISTED = re.compile(r"^- \[(.+?)\]\((.+?)\.html\): (.+)$")


def test_llms_txt_has_a_title_a_summary_and_the_sections_of_the_navigation(built):
    title, _, summary, *_ = lines = (built / "llms.txt").read_text(encoding="utf-8").splitlines()
    assert title == "# recollect"
    assert summary.startswith("> Memory for knowledge graphs that change")
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    sections = [name for entry in settings["nav"] for name, value in entry.items() if value != "index.md"]
    assert [line.removeprefix("## ") for line in lines if line.startswith("## ")] == sections


def test_llms_txt_lists_every_page_of_the_navigation_once_with_a_sentence_of_the_page(built):
    lines = (built / "llms.txt").read_text(encoding="utf-8").splitlines()
    listed = [match for match in map(LISTED.match, lines) if match]
    assert len(listed) == sum(line.startswith("- ") for line in lines), "every entry has a sentence"
    pages = [match[2].removesuffix("index") + ("README" if match[2].endswith("index") else "") for match in listed]
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert ["index.md", *(f"{page}.md" for page in pages)] == list(_pages(settings["nav"]))
    for page, match in zip(pages, listed, strict=True):
        words = re.sub(r"\W+", " ", (built / f"{page}.md").read_text(encoding="utf-8"))
        assert re.sub(r"\W+", " ", match[3]).split()[-1] in words.split(), page


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("# Title\n\nOne *thing* is [here](a.md). Another is not.\n", "One thing is here."),
        ("# Title\n\n```\nmake\n```\n\n| a |\n|---|\n\n- a list\n\nBy A. B. Cee, in 2018.\n", "By A. B. Cee, in 2018."),
        ("# Title\n", ""),
    ],
)
def test_the_first_sentence_of_a_page(tmp_path, text, sentence):
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    assert runpy.run_path(str(ROOT / "docs" / "prepare.py"))["first_sentence"](page) == sentence
