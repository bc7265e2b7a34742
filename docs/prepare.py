"""Copy the documents to build/docs, as a site needs them: `python docs/prepare.py`.

Links to files that are not documents, like sources and tests, become the path in code type, since a site has no such
pages. CONTRIBUTING.md and CHANGELOG.md become pages, and the help texts of all commands go into theirs. llms.txt lists
the pages of the navigation with their first sentences, for programs that read (llmstxt.org).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
DOCS, BUILT = ROOT / "docs", ROOT / "build" / "docs"
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "README.md": "index.md"}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
TABLE_ROW = re.compile(r"^\|.*$", flags=re.MULTILINE)
HELP = ROOT / "tests" / "golden" / "help.txt"
NO_TEXT = ("#", "|", "- ", "!", "<", ":::", "    ")  # how a block begins that is no paragraph


def prepare(built: Path = BUILT) -> None:
    """Write the folder `built` anew."""
    shutil.rmtree(built, ignore_errors=True)
    shutil.copytree(DOCS, built, ignore=shutil.ignore_patterns("*.md", "*.json", "*.py", "__pycache__"))
    sources = {source: source.relative_to(DOCS) for source in sorted(DOCS.rglob("*.md"))}
    sources |= {ROOT / name: Path(page) for name, page in PAGES.items() if page != "index.md"}
    for source, page in sources.items():
        text = source.read_text(encoding="utf-8")
        target = built / page
        target.parent.mkdir(parents=True, exist_ok=True)
        text = LINK.sub(partial(link, source=source, page=page), text)
        target.write_text(TABLE_ROW.sub(plain_bars, text), encoding="utf-8")
    with (built / "reference" / "commands.md").open("a", encoding="utf-8") as page:
        page.write(commands(HELP.read_text(encoding="utf-8")))
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    (built / "llms.txt").write_text(llms(settings, built), encoding="utf-8")


def link(match: re.Match[str], source: Path, page: Path) -> str:
    """Return a link of a document as the site has it: relative to its page, or a path in code type."""
    image, text, target, anchor = match[1], match[2], match[3], match[4] or ""
    if "://" in target or target.startswith("mailto:"):
        return match[0]
    file = (source.parent / target).resolve()
    if file.is_relative_to(DOCS) and file.suffix in (".md", ".png", ".svg", ".js"):
        there = file.relative_to(DOCS)
    elif file.parent == ROOT and file.name in PAGES:
        there = Path(PAGES[file.name])
    else:
        path = f"`{file.relative_to(ROOT)}`"
        return text if text.strip("`") in path else f"{text} ({path})"
    return f"{image}[{text}]({Path(os.path.relpath(there, page.parent)).as_posix()}{anchor})"


def plain_bars(row: re.Match[str]) -> str:
    """Return a row of a table whose code has `|` for `\\|`, which only GitHub needs."""
    return re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), row[0])


def commands(helps: str) -> str:
    """Return sections with the help of every command."""
    parts = re.split(r"^\$ (recollect.*) --help$", helps, flags=re.MULTILINE)
    sections = [
        f"## {name}\n\n```text\n{text.strip()}\n```" for name, text in zip(parts[1::2], parts[2::2], strict=True)
    ]
    return "\n\n".join(["", *sections]) + "\n"


def llms(settings: dict[str, Any], built: Path) -> str:
    """Return a list of all pages of the navigation by section, each with its first sentence."""
    lines = [f"# {settings['site_name']}", "", f"> {first_sentence(built / 'index.md')}"]
    for section, value in ((section, value) for entry in settings["nav"] for section, value in entry.items()):
        if value == "index.md":
            continue
        lines += ["", f"## {section}", ""]
        for title, page in pages_of(section, value):
            address = page.replace("README.md", "index.md").removesuffix(".md") + ".html"
            lines.append(f"- [{title}]({address}): {first_sentence(built / page)}")
    return "\n".join(lines) + "\n"


def pages_of(title: str, value: str | list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield (title, page) of an entry of the navigation and of all entries below it."""
    if isinstance(value, str):
        yield title, value
        return
    for entry in value:
        for name, inner in entry.items():
            yield from pages_of(name, inner)


def first_sentence(page: Path) -> str:
    """Return the first sentence of a page's first paragraph, without markup."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    paragraphs = (part.strip() for part in text.split("\n\n"))
    paragraph = next((part for part in paragraphs if part and not part.startswith(NO_TEXT)), "")
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
    plain = re.sub(r"(?<!\w)\*{1,2}(.+?)\*{1,2}(?!\w)", r"\1", plain)
    return re.split(r"(?<=[.!?])(?<! [A-Z]\.)\s+(?=[A-Z`(])", plain, maxsplit=1)[0]  # initials end no sentence


if __name__ == "__main__":
    prepare()
