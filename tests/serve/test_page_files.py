"""The files of the page: small, readable, self-contained, and served with strict headers."""

from __future__ import annotations

import gzip
import re

import pytest

from recollect.serve.http.rest import PAGE

SCRIPTS = sorted([*PAGE.rglob("*.js"), *PAGE.rglob("*.mjs")])
OWN = sorted([*PAGE.glob("*.js"), *PAGE.glob("*.css")])
MAX_SCRIPTS = 60_000  # bytes, compressed


def test_all_scripts_together_are_small():
    assert sum(len(gzip.compress(path.read_bytes())) for path in SCRIPTS) <= MAX_SCRIPTS


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_a_file_is_short_and_says_what_it_is_for(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) < 400
    assert lines[0].startswith(("// ", "/* "))


def test_nothing_is_inline():
    page = (PAGE / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", page)
    assert all("src=" in script for script in re.findall(r"<script[^>]*>", page))


@pytest.mark.parametrize("path", [PAGE / "index.html", *OWN], ids=lambda path: path.name)
def test_what_a_file_refers_to_is_there(path):
    text = path.read_text(encoding="utf-8")
    for place in re.findall(r'(?:src|href)="/static/([^"]+)"', text):
        assert (PAGE / place).is_file()
    for place in re.findall(r'from "(\./[^"]+)"', text):
        assert (path.parent / place).is_file()
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)


def test_libraries_have_their_licences():
    vendor = PAGE / "vendor"
    libraries = {path.name for path in vendor.iterdir() if path.suffix in (".js", ".mjs", ".css")}
    described = (vendor / "README.md").read_text(encoding="utf-8")
    assert all(name in described for name in libraries)
    assert all((vendor / name).is_file() for name in re.findall(r"LICENSE-\w+", described))


@pytest.mark.parametrize("path", ["/", "/static/app.js", "/static/vendor/preact.mjs", "/static/style.css"])
def test_files_are_served_with_a_strict_policy(client, path):
    response = client.get(path)
    assert response.status_code == 200
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    "path", ["/static/../service.py", "/static/%2e%2e/service.py", "/static/..%2fservice.py", "/static/no"]
)
def test_nothing_but_the_page_is_served(client, path):
    assert client.get(path).status_code == 404
