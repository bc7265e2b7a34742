"""Pictures of every page of the docs site in a browser, desktop and phone, and what is wider than the screen."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from examples.screenshots import chromium, smaller
from recollect.cli.rendering import console
from recollect.errors import UserError

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WIDTHS = {"desktop": 1280, "phone": 360}  # pixels
HEIGHT = 900
MAX_HEIGHT = 6000  # pixels of a picture; the rest of a long page is left out
# elements that reach beyond the screen although nothing around them scrolls or cuts them off
TOO_WIDE = """() => {
    const width = document.documentElement.clientWidth;
    const cut = (node) => {
        for (let box = node.parentElement; box; box = box.parentElement) {
            if (getComputedStyle(box).overflowX !== "visible") return true;
        }
        return false;
    };
    const isWide = (node) => node.getBoundingClientRect().right > width + 1 && !cut(node);
    const found = [...document.querySelectorAll(".md-content *, .md-header *, .md-footer *")].filter(isWide);
    return found.slice(0, 3).map((node) => `${node.tagName.toLowerCase()}: ${node.textContent.trim().slice(0, 60)}`);
}"""


def site_pictures(
    site: Annotated[Path, typer.Option(help="Folder of the built site.")] = Path("build/site"),
    out: Annotated[Path, typer.Option(help="Folder of the pictures.")] = Path("build/pictures"),
    dark: Annotated[bool, typer.Option("--dark", help="In dark colours.")] = False,
) -> None:
    """Open every page of the site in the system's Chromium, save pictures, and name what is wider than the screen.

    Example: `python -m examples.site_pictures`
    """
    pages = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html") if path.name != "404.html")
    if not pages:
        raise UserError(f"{site} has no pages; run make docs first")
    out.mkdir(parents=True, exist_ok=True)
    with served_folder(site) as address, chromium() as browser:
        for kind, width in WIDTHS.items():
            for page in pages:
                picture, found = take(browser, f"{address}/{page}", width, dark=dark)
                path = out / f"{kind}-{page.removesuffix('.html').replace('/', '-')}.png"
                path.write_bytes(smaller(picture))
                console().print(f"{path}  {'; '.join(found)}", highlight=False, soft_wrap=True, markup=False)


@contextmanager
def served_folder(folder: Path) -> Iterator[str]:
    """Serve the files of a folder on a free port of this machine and yield its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *values: Any) -> None:
        """Print nothing."""


def take(browser: Browser, address: str, width: int, *, dark: bool = False) -> tuple[bytes, list[str]]:
    """Return a whole page as PNG, and the elements that are wider than the screen."""
    context = browser.new_context(viewport={"width": width, "height": HEIGHT}, color_scheme="dark" if dark else "light")
    page = context.new_page()
    page.goto(address, wait_until="networkidle")
    found = too_wide(page)
    height = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": width, "height": min(height, MAX_HEIGHT)})
    picture = page.screenshot()
    context.close()
    return picture, found


def too_wide(page: Page) -> list[str]:
    """Return the first elements of a page that reach beyond the screen."""
    return list(page.evaluate(TOO_WIDE))


if __name__ == "__main__":
    typer.run(site_pictures)
