"""Tables in memory-mapped files: the same bits as in memory, and nothing as long as a table in a step."""

from __future__ import annotations

import mmap
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import net
from conftest import FORMED, model_config
from recollect import ModelConfig, Recipe, TrainingRun, UserError
from recollect.engine import MappedTables
from recollect.engine.mapped import _page_ranges
from recollect.evaluation.metrics import summarise
from recollect.evaluation.ranking import rank
from recollect.graph.fact_index import FactIndex
from recollect.graph.facts import Facts
from recollect.models.zoo import build_model
from recollect.training import objectives, rows
from recollect.training.objectives import TrainingBatch, sample_entities
from recollect.training.recipe import RECIPES
from recollect.training.validation import Validation

FAST = Recipe(epochs=2, batch_size=16, validate_every=1, learning_rate=1e-2)
SAMPLED = replace(RECIPES["modern"], epochs=2, validate_every=1, batch_size=16, candidates=8)


def graph_of(entities: int = 400, facts: int = 100):
    return net.random_graph(entities, 4, 10, facts)


def run_of(graph, name="distmult", form="episodic", recipe=SAMPLED, tables=None, **options) -> TrainingRun:
    return TrainingRun(graph, model_config(name, form, 4, **options), recipe=recipe, tables=tables)


def state_of(run: TrainingRun) -> dict[str, torch.Tensor]:
    return run.trainer.state()[0]


def assert_same_bits(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for name, value in a.items():
        assert torch.equal(value, b[name]), name


@pytest.mark.parametrize("recipe", [FAST, SAMPLED], ids=["adam", "adagrad"])
@pytest.mark.parametrize(("name", "form"), FORMED)
def test_mapped_tables_give_the_same_bits(tmp_path, name, form, recipe):
    graph = graph_of()
    in_memory, mapped = run_of(graph, name, form, recipe), run_of(graph, name, form, recipe, tables=tmp_path)
    assert "entity" in mapped.trainer.rows.tables
    assert list(in_memory) == list(mapped)
    assert_same_bits(state_of(in_memory), state_of(mapped))
    in_memory.result()
    mapped.result()
    assert_same_bits(in_memory.model.state_dict(), mapped.model.state_dict())


def test_a_mapped_run_is_resumed_from_a_checkpoint_in_memory_or_in_files(tmp_path):
    graph = graph_of()
    whole = run_of(graph, tables=tmp_path)
    list(whole)
    stopped = run_of(graph, tables=tmp_path)
    records = iter(stopped)
    for _ in range(9):
        next(records)
    stopped.save_checkpoint(tmp_path / "run.partial")
    for tables in (tmp_path, None):
        resumed = run_of(graph, tables=tables)
        resumed.load_checkpoint_(tmp_path / "run.partial")
        list(resumed)
        assert_same_bits(state_of(whole), state_of(resumed))


def test_the_files_of_tables_leave_nothing_behind(tmp_path):
    run = run_of(graph_of(), tables=tmp_path / "new")
    list(run)
    assert list((tmp_path / "new").iterdir()) == []


def test_a_folder_that_cannot_hold_a_table_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"no file of [0-9,]+ bytes for a table can be written here .*--tables"):
        run_of(graph_of(), tables=tmp_path / "file")


def test_mapped_tables_are_trained_on_the_cpu(tmp_path):
    with pytest.raises(UserError, match="are trained on the cpu; got the device cuda"):
        MappedTables(tmp_path).zeros((2, 3), dtype=torch.float32, device="cuda")


def test_an_empty_mapped_tensor_needs_no_file(tmp_path):
    assert MappedTables(tmp_path).zeros((0, 3), dtype=torch.float32).shape == (0, 3)


def test_a_run_that_does_not_fit_is_advised_to_map_its_tables(tmp_path, monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=2_000_000))
    sizes = graph_of(20_000)
    config = ModelConfig(model="distmult", dim=32)
    with pytest.raises(
        UserError, match=r"or keep the tables in memory-mapped files \(tables=FOLDER, --tables FOLDER\)"
    ):
        TrainingRun(sizes, config, recipe=SAMPLED)
    TrainingRun(sizes, config, recipe=SAMPLED, tables=tmp_path)
    with pytest.raises(UserError, match="compares every fact with all 20,000 entities, which needs .* sample some"):
        TrainingRun(sizes, config, recipe=replace(SAMPLED, candidates=0), tables=tmp_path)


def test_the_rows_of_a_batch_are_the_same_by_sorting_and_by_marking(monkeypatch):
    graph = graph_of()
    model = build_model(model_config("distmult", "episodic", 4), graph.sizes, generator=torch.Generator())
    facts = graph.split("train")[:16]
    negatives = {"s": torch.arange(32).view(16, 2), "o": torch.arange(50, 66)[:, None]}
    found = []
    for share in (1, 1000):  # by sorting, by marking
        monkeypatch.setattr(rows, "SPARSE_SHARE", share)
        touched = {"entity": rows.touched_rows(model, "entity", facts, negatives)}
        renumbered = rows._renumber(model, touched, TrainingBatch(facts, 16, negatives))
        found.append((touched["entity"], renumbered.facts.ids, *renumbered.negatives.values()))
    for sorted_, marked in zip(*found, strict=True):
        assert torch.equal(sorted_, marked)
    touched, ids, *_ = found[0]
    assert torch.equal(touched[ids[:, 0]], facts.s)


@given(st.integers(1, 3 * mmap.PAGESIZE), st.lists(st.integers(0, 5000), min_size=1, unique=True).map(sorted))
def test_every_byte_of_a_row_is_on_a_page_that_is_read_ahead(row_bytes, chosen):
    pages = set()
    for start, length in _page_ranges(np.array(chosen), row_bytes):
        assert start % mmap.PAGESIZE == length % mmap.PAGESIZE == 0
        pages |= set(range(start, start + length, mmap.PAGESIZE))
    ends = [at for row in chosen for at in (row * row_bytes, (row + 1) * row_bytes - 1)]
    wanted = {at // mmap.PAGESIZE * mmap.PAGESIZE for at in ends}
    assert wanted <= pages
    assert len(pages) <= sum((row_bytes - 1) // mmap.PAGESIZE + 2 for _ in chosen)


@given(st.integers(20, 400), st.integers(1, 19), st.data())
def test_strata_count_for_all_entities_that_are_not_in_the_batch(count, sampled, data):
    in_batch = torch.tensor(data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=12)))
    seed = data.draw(st.integers(0, 1000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objectives, "MAX_SHUFFLED", 0)
        ids, counts = sample_entities(count, in_batch, sampled, torch.Generator().manual_seed(seed))
    assert bool((ids.diff() > 0).all())
    assert 0 <= int(ids.min()) <= int(ids.max()) < count
    is_own = torch.isin(ids, in_batch)
    assert torch.equal(ids[is_own], in_batch.unique())
    assert counts[is_own].tolist() == [1.0] * int(is_own.sum())
    assert counts.sum().item() == pytest.approx(count, rel=1e-5)


def test_strata_draw_every_entity_equally_often(monkeypatch):
    monkeypatch.setattr(objectives, "MAX_SHUFFLED", 0)
    g, in_batch, total = torch.Generator().manual_seed(1), torch.tensor([3, 8, 59, 3]), torch.zeros(60)
    for _ in range(2000):
        ids, counts = sample_entities(60, in_batch, 5, g)
        total[ids] += counts
    assert total[in_batch].tolist() == [2000] * 4
    torch.testing.assert_close(total / 2000, torch.ones(60), rtol=0, atol=0.4)  # more than four standard deviations


@pytest.mark.parametrize(("name", "form"), [("distmult", "episodic"), ("cont", "both"), ("complex", "semantic")])
def test_validation_of_many_entities_ranks_among_a_sample(name, form):
    graph = graph_of(60, 400)
    valid, known = graph.split("valid"), Facts.concat(graph.splits.values())
    config = model_config(name, form, 4)
    model = build_model(config, graph.sizes, generator=torch.Generator().manual_seed(0))
    every = Validation(model, valid, known)
    assert every.entities is None
    rankings = [rank(model, valid, slot, known=FactIndex(known, graph.sizes))["filtered"] for slot in "so"]
    assert every.mrr() == summarise(rankings)["mrr"]
    sampled = Validation(model, valid, known, most=50, sampled=20)
    assert sampled.mrr() == pytest.approx(_brute_force_mrr(model, valid, known, sampled.entities.tolist()))


def _brute_force_mrr(model, valid: Facts, known: Facts, entities: list[int]) -> float:
    """Return the mean of 1 / rank among some entities, each candidate scored as a fact of its own."""
    stored = {tuple(fact) for fact in known.ids.tolist()}
    reciprocal = []
    for place in (0, 2):
        for fact in valid.ids.tolist():
            candidates = [(*fact[:place], entity, *fact[place + 1 :]) for entity in entities]
            others = [each for each in candidates if each not in stored]
            with torch.no_grad():
                own, *scores = model.score(Facts.of([fact, *others])).tolist()
            scores = np.array(scores)
            reciprocal.append(1 / (1 + (scores > own + 1e-6).sum()))
    return float(np.mean(reciprocal))
