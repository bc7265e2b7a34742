"""What is taught on the page, or by an agent, is recalled on the page until it is forgotten."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import anyio
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

import recollect
from browser_fixtures import served, settled, texts, violations
from recollect import Memory
from recollect.serve.http.guard import Access
from recollect.serve.http.rest import create_app
from recollect.serve.service import Service

pytestmark = pytest.mark.xdist_group("browser")
NEW = {"who": "Ada Novak", "what": "Visits", "whom": "Traistan", "when": "2001-12"}
FACT = "Ada Novak · Visits · Traistan"
WHO = f"?{urlencode({name: label for name, label in NEW.items() if name != 'who'})}"


@pytest.fixture(scope="module")
def own_folder(world_folder: Path, tmp_path_factory) -> Path:
    """A memory that these tests may change."""
    return Path(shutil.copytree(world_folder, tmp_path_factory.mktemp("taught") / "world.memory"))


@pytest.fixture(scope="module")
def own_memory(own_folder: Path) -> Memory:
    return Memory.load(own_folder)


@pytest.fixture(scope="module")
def address(own_memory: Memory) -> Iterator[str]:
    with served(create_app(Service(own_memory), Access())) as found:
        yield found


@pytest.fixture(autouse=True)
def _as_before(own_memory: Memory) -> Iterator[None]:
    """Leave no taught fact to the next test."""
    yield
    own_memory.forget(subject=NEW["who"])


def stored(page) -> list[str]:
    """Return the stored answers that a page shows."""
    page.locator(".answers .answer").first.wait_for()
    settled(page)
    return page.locator(".answers .stored .answer").all_inner_texts()


def teach(page) -> None:
    for name, label in NEW.items():
        page.locator(f"input[name={name}]").fill(label)
    page.get_by_role("button", name="Remember").click()
    page.locator(".outcome", has_text="Remembered").wait_for()


def test_a_taught_fact_is_recalled_until_it_is_forgotten(open_page, own_memory):
    page = open_page("?view=teach")
    teach(page)
    assert texts(page, ".outcome .fact") == [FACT]
    assert texts(page, ".journal .fact")[0] == FACT
    assert own_memory.recall(predicate="Visits", object="Traistan", time="2001-12")["subject"][0] == "Ada Novak"
    page.locator(".outcome .fact").click()  # the whole fact
    assert page.locator(".verdict").inner_text().split() == ["100", "%", "stored"]
    page.locator("input[name=who]").fill("")
    page.keyboard.press("Enter")
    assert "Ada Novak" in stored(page)
    page.get_by_role("navigation").get_by_role("link", name="Teach").click()
    for name, label in NEW.items():
        page.locator(f"input[name={name}]").fill(label)
    page.get_by_role("button", name="Forget").click()
    page.locator(".outcome", has_text="Forgotten").wait_for()
    page.goto(page.url.partition("?")[0] + WHO)
    assert "Ada Novak" not in stored(page)


def test_undo_takes_back_what_was_remembered_and_what_was_forgotten(open_page, own_memory):
    page = open_page("?view=teach")
    teach(page)
    page.locator(".outcome").get_by_role("button", name="Undo").click()
    page.locator(".outcome", has_text="Forgotten").wait_for()
    fact = {name: [label] for name, label in REMEMBERED["facts"][0].items()}
    assert own_memory.probability(fact)["status"][0] == "predicted"
    page.locator(".outcome").get_by_role("button", name="Undo").click()
    page.locator(".outcome", has_text="Remembered").wait_for()
    page.goto(page.url.partition("?")[0] + WHO)
    assert "Ada Novak" in stored(page)


def test_completion_knows_a_new_name_at_once(open_page):
    page = open_page("?view=teach")
    teach(page)
    page.get_by_role("navigation").get_by_role("link", name="Ask").click()
    page.get_by_role("combobox", name="Who", exact=True).fill("ada n")
    assert texts(page, "[role=option] span") == ["Ada Novak"]


def test_several_facts_are_shown_before_they_are_forgotten(open_page, own_memory):
    before = own_memory.graph.counts["train"]
    page = open_page("?view=teach&what=Visits")
    page.get_by_role("button", name="Forget").click()
    page.get_by_role("alert").filter(has_text="This forgets").wait_for()
    assert own_memory.snapshot().graph.counts["train"] == before
    page.get_by_role("button", name="Forget them").click()
    page.locator(".outcome", has_text="Forgotten").wait_for()
    assert own_memory.know(predicate="Visits", as_of="2001-06", include="stored").height == 0
    page.locator(".outcome").get_by_role("button", name="Undo").click()
    page.locator(".outcome", has_text="Remembered").wait_for()
    assert own_memory.snapshot().graph.counts["train"] == before


def test_what_is_stored_already_changes_nothing(open_page, own_memory):
    graph = own_memory.graph
    row = graph.table(graph.split("train")[100:101]).row(0)
    page = open_page(f"?{urlencode({'view': 'teach', **dict(zip(NEW, row, strict=True))})}")
    page.get_by_role("button", name="Remember").click()
    assert "Nothing changed" in page.locator(".outcome").inner_text()


def test_a_fact_without_all_its_parts_is_refused_in_the_words_of_the_service(open_page):
    page = open_page("?view=teach&who=Ada&what=Visits&when=2001-12", refused=True)
    page.get_by_role("button", name="Remember").click()
    assert page.get_by_role("alert").inner_text() == "Object is missing; give it."


def test_a_memory_that_is_read_only_cannot_be_taught(open_page, own_memory):
    with served(create_app(Service(own_memory, read_only=True), Access())) as address:
        page = open_page("?view=teach", at=address)
        page.get_by_role("heading", name="Leave open what you want to know").wait_for()
        assert page.get_by_role("navigation").get_by_role("link", name="Teach").count() == 0
        assert page.get_by_role("button", name="Remember").count() == 0


def test_the_teach_view_is_accessible_and_fits_a_phone(open_page):
    page = open_page("?view=teach", width=360, scheme="dark")
    teach(page)
    settled(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert violations(page) == []
    page.get_by_role("navigation").get_by_role("link", name="Changes").click()
    assert texts(page, ".journal .fact")[0] == FACT


# --- an agent and the page ---


def in_thread(talk: Callable[[], Awaitable[None]]) -> None:
    """Run a conversation in a thread: the browser has the event loop of this one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(anyio.run, talk).result()


async def call(client: Client, tool: str, arguments: dict[str, object]) -> None:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content


REMEMBERED = {"facts": [{"subject": NEW["who"], "predicate": NEW["what"], "object": NEW["whom"], "time": NEW["when"]}]}
FORGOTTEN = REMEMBERED["facts"][0]


def test_what_an_agent_remembers_over_http_the_page_shows(open_page, address):
    async def remember() -> None:
        async with (
            httpx2.AsyncClient(base_url=address) as http,
            Client(streamable_http_client(f"{address}/mcp", http_client=http)) as client,
        ):
            await call(client, "remember", REMEMBERED)

    page = open_page(WHO)
    assert "Ada Novak" not in stored(page)
    in_thread(remember)
    page.reload()
    assert "Ada Novak" in stored(page)


@pytest.mark.long
def test_what_an_agent_remembers_in_another_process_the_page_shows(open_page, own_folder):
    words = ["-m", "recollect", "mcp", str(own_folder)]
    source = str(Path(recollect.__file__).parents[1])
    server = StdioServerParameters(command=sys.executable, args=words, env={"PYTHONPATH": source})
    page = open_page(WHO)

    async def talk() -> None:
        with anyio.fail_after(120):
            async with Client(server) as client:
                await call(client, "remember", REMEMBERED)

    in_thread(talk)
    page.reload()
    assert "Ada Novak" in stored(page)

    async def take_back() -> None:
        with anyio.fail_after(120):
            async with Client(server) as client:
                await call(client, "forget", FORGOTTEN)

    in_thread(take_back)
    page.reload()
    assert "Ada Novak" not in stored(page)
