"""The page of other memories: a semantic one, which has no times, and one of intervals, of which some have no end."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pytest

import recollect
from browser_fixtures import served, settled, texts, violations
from recollect import Memory, Recipe
from recollect.serve.http.guard import Access
from recollect.serve.http.rest import create_app
from recollect.serve.service import Service


@pytest.fixture(scope="module")
def semantic(small_world) -> Iterator[tuple[str, Service]]:
    """The address of a memory that was projected."""
    memory = Memory.learn(small_world, model="distmult", dim=4, recipe=Recipe(epochs=1), history=False)
    service = Service(memory.project("2001-03"))
    with served(create_app(service, Access())) as found:
        yield found, service


@pytest.fixture(scope="module")
def firms() -> Iterator[str]:
    """The address of a memory of intervals: Ann leads Acme without an end, and Bob has ended."""
    rows = [
        ("Ann", "leads", "Acme", "2001", "present"),
        ("Bob", "leads", "Birch", "2000", "2003"),
        ("Bob", "advises", "Acme", "2001", "2003"),
        ("Cleo", "advises", "Birch", "2003", "present"),
    ]
    table = pl.DataFrame(rows, schema=["subject", "predicate", "object", "start", "end"], orient="row")
    memory = Memory.learn(recollect.read(table), model="history")
    with served(create_app(Service(memory), Access())) as found:
        yield found


def test_a_semantic_memory_is_asked_without_times(open_page, semantic):
    address, service = semantic
    page = open_page(at=address)
    assert page.locator(".memory").inner_text().endswith("as of 2001-03")
    assert texts(page, "nav a") == ["Ask", "Then", "Teach", "About"]
    assert page.get_by_role("combobox").count() == 3
    page.get_by_role("link", name="Whom?").click()
    assert service.about().example.object in texts(page, ".answers .answer")
    page.locator(".answers .stored .why").first.click()
    page.locator(".reasons").get_by_text("The memory has this fact.").first.wait_for()
    assert violations(page) == []


def test_a_prediction_of_a_model_alone_has_its_probability_and_no_error(open_page, semantic):
    address, service = semantic
    example = service.about().example
    query = f"?who={example.object}&what={example.predicate}&whom={example.object}"
    page = open_page(query, at=address)
    page.locator(".verdict").wait_for()
    assert "predicted" in page.locator(".verdict").inner_text()
    assert "A model predicts it" in page.locator(".panel").inner_text()
    assert page.get_by_role("alert").count() == 0


def test_then_of_a_semantic_memory_has_no_slider(open_page, semantic):
    address, service = semantic
    page = open_page(f"?view=then&entity={service.about().example.subject}", at=address)
    page.get_by_role("heading", name="True as of 2001-03").wait_for()
    assert page.get_by_role("slider").count() == 0
    assert "ended" not in page.locator("figcaption").inner_text()
    assert page.get_by_role("heading", name="Ended before").count() == 0


def test_an_interval_without_an_end_goes_on(open_page, firms):
    page = open_page("?who=Ann&what=leads&whom=Acme", at=firms)
    settled(page)
    assert texts(page, "figcaption .span") == ["since 2001"]
    page = open_page("?view=then&entity=Acme", at=firms)
    settled(page)
    assert [text.split("\n")[-1] for text in texts(page, ".lists .facts:not(.ended) li")] == ["since 2001"]
    assert [text.split("\n")[-1] for text in texts(page, ".lists .facts.ended li")] == ["until 2002"]
    assert violations(page) == []


def test_what_began_without_an_end_has_not_ended(open_page, firms):
    page = open_page("?view=changes&since=2000&until=2004", at=firms)
    settled(page)
    began, ended = (page.locator(".changes .facts").nth(i).locator("li").all_inner_texts() for i in (0, 1))
    assert any("Ann" in text for text in began)
    assert not any("Ann" in text or "Cleo" in text for text in ended)


def test_a_fact_without_an_end_is_taught_and_taken_back(open_page, firms):
    page = open_page("?view=teach&who=Dan&what=leads&whom=Birch&when=2003..", at=firms)
    page.get_by_role("button", name="Remember").click()
    page.locator(".outcome").wait_for()
    assert "since 2003" in page.locator(".outcome").inner_text()
    page.locator(".outcome").get_by_role("button", name="Undo").click()
    page.locator(".outcome strong", has_text="Forgotten").wait_for()
