"""The application of the tutorial is the one of examples/, and stays small. The tutorial itself is run by test_docs."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_tutorial_shows_the_application_as_it_is():
    source = (ROOT / "examples" / "service_log.py").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "tutorials" / "embed.md").read_text(encoding="utf-8")
    assert f"```python\n{source}```" in page
    assert len(source.splitlines()) <= 60
