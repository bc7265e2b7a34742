"""The load generator of the service: a server process, reads and writes, and what is counted."""

from __future__ import annotations

import pytest

from benchmarks.serving_mixed import measure_mixed
from benchmarks.serving_workers import measure_agreement, measure_sharing

pytestmark = pytest.mark.long


def test_reads_and_writes_have_no_error():
    found = measure_mixed(None, "world", seconds=3)
    assert found["errors"] == 0, found["first_errors"]
    assert found["requests"]["remember"] == found["requests"]["forget"] > 0
    assert found["requests"]["recall"] > 0


def test_the_next_answer_of_another_process_has_what_was_written():
    assert measure_agreement(None, "world", 3)["first_answer_had_it"] == "100%"


def test_two_processes_are_found_and_measured():
    found = measure_sharing(None, "world", 2)
    assert 0 < found["unshared_mb"] <= found["proportional_mb"] <= found["resident_mb"]
