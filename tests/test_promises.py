"""Every promise of docs/promises.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
PROMISES = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ") and "`tests/" in line]


@pytest.mark.parametrize(("promise", "tests"), PROMISES, ids=[promise for promise, _ in PROMISES])
def test_every_promise_has_a_test(promise, tests):
    for test in tests.split(", "):
        file, name = re.fullmatch(r"`(tests/[\w/]+\.py)::(test_\w+)`", test).groups()
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), test


def test_no_row_of_the_page_is_without_a_test():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and line != "| promise | test |"]
    assert len(rows) == len(PROMISES) > 10
