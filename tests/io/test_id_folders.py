"""Folders of numbered facts of other tools: every id keeps its name, also those without a fact."""

from __future__ import annotations

from pathlib import Path

import pytest

from recollect import UserError, read

FILES = {
    "entity2id.txt": "Iran\t0\nSyria\t1\nTurkey\t2\nNobody\t3\n",
    "relation2id.txt": "Fight\t0\nVisit\t1\n",
    "train.txt": "0\t0\t1\t0\t-1\n2\t1\t0\t24\t-1\n",
    "valid.txt": "2\t1\t1\t48\t-1\n",
    "stat.txt": "6\t3\t0",
}


def write_folder(folder: Path, **changes: str | None) -> Path:
    files = FILES | {name.replace("_txt", ".txt"): text for name, text in changes.items()}
    for name, text in files.items():
        if text is not None:
            (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_names_and_all_ids_of_stat_are_kept(tmp_path):
    graph = read(write_folder(tmp_path))
    assert set(graph.entities.labels) == {"Iran", "Syria", "Turkey", "Nobody", "4", "5"}
    assert set(graph.predicates.labels) == {"Fight", "Visit", "2"}
    assert graph.times.labels == ["0", "24", "48"]
    assert graph.table(graph.split("train")).rows() == [
        ("Iran", "Fight", "Syria", "0"),
        ("Turkey", "Visit", "Iran", "24"),
    ]
    assert graph.table(graph.split("valid")).rows() == [("Turkey", "Visit", "Syria", "48")]


@pytest.mark.parametrize("names", ["0\tIran\n1\tSyria\n2\tTurkey\n", "3\nIran\t0\nSyria\t1\nTurkey\t2\n"])
def test_ids_may_come_first_and_so_may_their_number(tmp_path, names):
    graph = read(write_folder(tmp_path, entity2id_txt=names, stat_txt=None))
    assert graph.entities.labels == ("Iran", "Syria", "Turkey")


def test_ids_that_share_a_name_stay_apart(tmp_path):
    graph = read(write_folder(tmp_path, entity2id_txt="A\t0\nA\t1\n4\t2\n", stat_txt="5 2"))
    assert set(graph.entities.labels) == {"A (0)", "A (1)", "4 (2)", "3", "4 (4)"}


def test_names_of_times_and_other_separators(tmp_path):
    graph = read(
        write_folder(
            tmp_path, train_txt="0 0 1 0\n2 1 0 1\n", valid_txt="2 1 1 2\n", time2id_txt="2014\t0\n2015\t1\n2016\t2\n"
        )
    )
    assert (graph.times.grain, graph.times.labels) == ("year", ["2014", "2015", "2016"])


def test_triples_without_time_are_read_as_static(tmp_path):
    folder = write_folder(tmp_path, train_txt="0\t0\t1\n", valid_txt=None)
    assert read(folder, static=True).table(read(folder, static=True).facts).row(0)[:3] == ("Iran", "Fight", "Syria")
    with pytest.raises(UserError, match=r"3 columns of ids; without times, read it by static=True"):
        read(folder)


def test_facts_with_labels_are_read_as_before(tmp_path):
    graph = read(write_folder(tmp_path, train_txt="Iran\tFight\tSyria\t2014\n", valid_txt=None))
    assert graph.entities.labels == ("Iran", "Syria")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_txt": "0\t0\t9\t0\n"}, "train.txt, line 1: '9' is no entity of entity2id.txt or stat.txt"),
        ({"stat_txt": "few"}, "stat.txt: wanted the numbers of entities and predicates"),
        ({"stat_txt": "3 2"}, "entity2id.txt: the id 3 is not below 3, which stat.txt has"),
        ({"entity2id_txt": "Iran\n"}, "entity2id.txt, line 1: wanted a name and an id"),
        ({"entity2id_txt": "Iran\tx\n"}, "entity2id.txt, line 1: wanted a name and an id"),
        ({"relation2id_txt": "Fight\t0\nVisit\t0\n"}, "relation2id.txt, line 2: the id 0 has a name already"),
    ],
)
def test_damaged_id_files_name_file_and_line(tmp_path, changes, message):
    with pytest.raises(UserError) as raised:
        read(write_folder(tmp_path, **changes))
    assert message in str(raised.value)


def test_published_folders_keep_all_ids_of_stat(real_data):
    folder = real_data / "forecast" / "yago"
    if not folder.is_dir():
        pytest.skip("needs forecast/yago")
    graph = read(folder)
    assert (len(graph.entities), len(graph.predicates), len(graph.times)) == (10623, 10, 189)
