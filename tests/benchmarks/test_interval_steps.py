"""The benchmark of intervals runs every step at a tiny size."""

from __future__ import annotations

from benchmarks.intervals import invented_posts, run_steps


def test_every_step_is_timed_from_a_file_and_from_a_table(tmp_path):
    file = tmp_path / "posts.csv"
    invented_posts(300).write_csv(file)
    names = [step["step"] for source in ("csv", "frame") for step in run_steps(source, file)]
    assert names[:3] == ["csv: read", "csv: learn", "csv: first know, all"]
    assert names[-3:] == ["csv: save", "csv: load", "frame: read"]


def test_the_invented_table_is_the_same_for_the_same_number():
    assert invented_posts(200).equals(invented_posts(200))
