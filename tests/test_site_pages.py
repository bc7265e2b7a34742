"""The built site in a browser: every page fits a phone and a desktop, and loads nothing from elsewhere."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from browser_fixtures import WAIT, violations
from examples import live
from examples.site_pictures import WIDTHS, served_folder, too_wide

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("browser")]
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def built_site(tmp_path_factory) -> Path:
    """The site as `make docs` builds it."""
    pytest.importorskip("zensical", reason="the site: pip install recollect[docs]")
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    (folder / "src").symlink_to(ROOT / "src")  # the sources of the reference
    runpy.run_path(str(ROOT / "docs" / "prepare.py"))["prepare"](folder / "build" / "docs")
    live.export(live.learn(), folder / "build" / "docs" / "live")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", "mkdocs.yml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "build" / "site"


@pytest.fixture(scope="module")
def site_address(built_site):
    with served_folder(built_site) as address:
        yield address


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_every_page_fits_the_screen_and_loads_nothing_from_elsewhere(browser, built_site, site_address, width):
    context = browser.new_context(viewport={"width": width, "height": 800})
    page, complaints = context.new_page(), []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: request.url.startswith(site_address) or complaints.append(request.url))
    pages = sorted(path.relative_to(built_site).as_posix() for path in built_site.rglob("*.html"))
    assert len(pages) > 20
    for name in pages:
        page.goto(f"{site_address}/{name}")
        assert too_wide(page) == [], name
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
    context.close()
    assert not complaints


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_the_live_memory_answers_on_the_site_with_the_network_off(browser, site_address, width, scheme):
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    context.set_default_timeout(WAIT)
    page = context.new_page()
    page.goto(f"{site_address}/live.html")
    page.locator("#live ol li").first.wait_for()
    page.wait_for_load_state("networkidle")
    context.set_offline(True)
    page.get_by_role("button", name="Ask when").click()
    page.locator("[role=status]", has_text="When?").wait_for()
    assert page.locator("#live ol li").count() == 8
    assert violations(page) == []
    context.close()
