"""The Python of docs/evaluation.md runs as printed."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "evaluation.md"


def test_the_python_of_the_page_runs_as_printed():
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    space: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, PAGE.name, "exec"), space)
    assert repr(space["evaluation"]).startswith("Evaluation(test, 110 facts, filtered entity MRR ")
