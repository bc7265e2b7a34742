"""A browser and services that it opens, once per module."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import uvicorn
from starlette.types import ASGIApp

from recollect.serve.http.guard import Access
from recollect.serve.http.rest import create_app
from recollect.serve.service import Service

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WAIT = 15_000  # milliseconds for what a page should show; a busy machine is slow


@contextmanager
def served(app: ASGIApp) -> Iterator[str]:
    """Serve an application on a free port of this machine and yield its address."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="on", ws="none"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def address(service: Service) -> Iterator[str]:
    """The address of the page of a small world."""
    with served(create_app(service, Access())) as found:
        yield found


@pytest.fixture(scope="module")
def browser():
    """The system's Chromium."""
    playwright = pytest.importorskip("playwright.sync_api", reason="a browser: pip install playwright")
    found = os.environ.get("RECOLLECT_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if not found:
        pytest.skip("a browser: install chromium, or set RECOLLECT_CHROMIUM to its path")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser, address) -> Iterator[Callable]:
    """Open the page at a query string; afterwards no page may have complained or asked another machine."""
    contexts, complaints = [], []

    def open_at(query: str = "", *, scheme: str = "light", width: int = 1100, at: str = address, refused: bool = False):
        context = browser.new_context(
            color_scheme=scheme, viewport={"width": width, "height": 800}, reduced_motion="reduce"
        )
        context.set_default_timeout(WAIT)
        contexts.append(context)
        page = context.new_page()
        if not refused:  # the browser writes every refused request to the console
            page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: request.url.startswith(at) or complaints.append(request.url))
        page.goto(f"{at}/{query}")
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert not complaints


def texts(page, selector: str) -> list[str]:
    """Return the texts of elements, once the first one is there."""
    page.locator(selector).first.wait_for()
    return [text.strip() for text in page.locator(selector).all_inner_texts()]


def settled(page) -> None:
    """Wait until every question of the page is answered."""
    page.locator("main > *:not(h1)").first.wait_for()
    while page.locator("[aria-busy=true]").count():
        page.wait_for_timeout(10)


def violations(page) -> list[tuple[str, list[str]]]:
    """Return what axe finds wrong with a page: the rules and the elements."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [(each["id"], [node["html"] for node in each["nodes"]]) for each in found]
