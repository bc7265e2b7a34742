"""The pictures of the page in the README: the demonstration's memory in a browser, in light, dark and on a phone."""

from __future__ import annotations

import io
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlencode

import typer

from recollect.cli.rendering import console
from recollect.errors import UserError

if TYPE_CHECKING:
    from playwright.sync_api import Browser

COLOURS = 96  # of a picture: enough for text, and small
DESKTOP, PHONE = (1080, 830), (360, 830)  # width and height, pixels of the page
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]


@dataclass(frozen=True)
class Picture:
    """A view of the page, and how it is taken."""

    name: str
    query: dict[str, str]
    scheme: Literal["light", "dark"] = "light"
    size: tuple[int, int] = DESKTOP
    opens: str | None = None  # selector of a button that is pressed first


PICTURES = (
    Picture(
        "ask",
        {"what": "Trades with", "whom": "Zavmark", "when": "2008-03"},
        opens=".predicted .why",
    ),
    Picture("then", {"view": "then", "entity": "Rairia", "at": "2004-05"}, scheme="dark"),
    Picture("phone", {"who": "Rairia", "what": "Trades with", "whom": "Zavmark"}, size=PHONE),
)


def screenshots(
    memory: Annotated[Path, typer.Option(help="Memory of the demonstration.")] = Path("recollect-demo/world.memory"),
    out: Annotated[Path, typer.Option(help="Folder of the pictures.")] = Path("docs/images"),
) -> None:
    """Serve the demonstration's memory, open the page in the system's Chromium and save the README's pictures.

    Example: `python -m examples.screenshots`
    """
    out.mkdir(parents=True, exist_ok=True)
    with served(memory) as address, chromium() as browser:
        for picture in PICTURES:
            path = out / f"page-{picture.name}.png"
            path.write_bytes(smaller(take(browser, address, picture)))
            console().print(f"{path}  {path.stat().st_size / 1000:.0f} kB", highlight=False)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the system's Chromium."""
    from playwright.sync_api import sync_playwright

    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        raise UserError("pictures need a browser; install chromium")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def served(memory: Path) -> Iterator[str]:
    """Serve a memory on a free port of this machine and yield its address."""
    import uvicorn

    from recollect.serve.http.running import Settings, build_app

    app = build_app(Settings(memory=str(memory)))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="on"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


def take(browser: Browser, address: str, picture: Picture) -> bytes:
    """Return a view of the page as PNG."""
    width, height = picture.size
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=picture.scheme, device_scale_factor=2
    )
    page = context.new_page()
    page.goto(f"{address}/?{urlencode(picture.query)}")
    page.locator("main > section, main > form").last.wait_for()
    page.wait_for_load_state("networkidle")
    if picture.opens is not None:
        page.locator(picture.opens).first.click()
        page.mouse.move(0, 0)
    page.wait_for_load_state("networkidle")
    page.evaluate("document.activeElement.blur()")
    page.wait_for_timeout(300)  # until transitions have ended
    taken = page.screenshot()
    context.close()
    return taken


def smaller(image: bytes) -> bytes:
    """Return a PNG with few colours, which suffice for text and lines."""
    from PIL import Image

    buffer = io.BytesIO()
    reduced = Image.open(io.BytesIO(image)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    reduced.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


if __name__ == "__main__":
    typer.run(screenshots)
