"""The live memory of the docs answers in a browser without a network, as `memory.recall` does."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import polars as pl
import pytest
import torch
import typer
from safetensors.torch import load_file

from browser_fixtures import WAIT, texts, violations
from command import run_main
from conftest import memory_of, random_model
from examples import live
from examples.site_pictures import served_folder, too_wide
from recollect import Memory, UserError
from recollect.graph.facts import KINDS, SLOTS, Facts

pytestmark = pytest.mark.xdist_group("browser")
ROOT = Path(__file__).parents[2]
MAX_BYTES = 3_000_000
FILES = {"page.css", "page.js", "scorer.js", "memory.json", "memory.safetensors"}
QUESTIONS = 400
WORDS = {"subject": "who", "predicate": "what", "object": "whom", "time": "when"}
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Live</title><link rel="icon" href="data:,">
<meta name="viewport" content="width=device-width"></head><body><main class="md-content"><h1>Live</h1>{}</main></body>
</html>"""


@pytest.fixture(scope="module")
def memory() -> Memory:
    return live.learn(epochs=1)


@pytest.fixture(scope="module")
def folder(memory, tmp_path_factory) -> Path:
    """The page of docs/live.md without the site around it, its scripts and its memory."""
    folder = tmp_path_factory.mktemp("live")
    shutil.copytree(ROOT / "docs" / "live", folder / "live")
    live.export(memory, folder / "live")
    text = (ROOT / "docs" / "live.md").read_text(encoding="utf-8")
    part = re.search(r'<div id="live">.*</script>', text, flags=re.DOTALL)
    assert part is not None
    (folder / "live.html").write_text(PAGE.format(part[0]), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def site(folder):
    with served_folder(folder) as address:
        yield address


@pytest.fixture
def open_live(browser, site):
    """Open the page, wait for its memory and cut the network; afterwards nobody may have been asked for anything."""
    contexts, complaints = [], []

    def open_at(fragment: str = "", *, width: int = 1100, scheme: str = "light", scripts: bool = True):
        context = browser.new_context(
            color_scheme=scheme, viewport={"width": width, "height": 800}, java_script_enabled=scripts
        )
        context.set_default_timeout(WAIT)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: request.url.startswith(f"{site}/live") or complaints.append(request.url))
        page.goto(f"{site}/live.html{fragment}")
        if scripts:
            page.locator("#live ol li").first.wait_for()
            context.set_offline(True)
            page.on("request", lambda request: complaints.append(request.url))
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert not complaints


def random_questions(memory: Memory, count: int) -> list[dict[str, str]]:
    """Return questions of all slots in turn: half about facts of all splits, half about random ids."""
    graph, generator = memory.graph, torch.Generator().manual_seed(0)
    facts = graph.facts[torch.randint(len(graph.facts), (count,), generator=generator)]
    ids = [torch.randint(graph.sizes[KINDS[slot]], (count,), generator=generator) for slot in SLOTS]
    chosen = Facts(torch.where(torch.arange(count)[:, None] % 2 == 0, facts.ids, torch.stack(ids, dim=1)))
    questions = graph.table(chosen).rows(named=True)
    for number, question in enumerate(questions):
        del question[list(WORDS)[number // 2 % 4]]
    return questions


def test_the_page_answers_as_recall_does_with_the_network_off(open_live, memory):
    questions = random_questions(memory, QUESTIONS)
    page = open_live()
    found = page.evaluate(
        "(questions) => questions.map((question) => window.liveMemory.recall(question, 10))", questions
    )
    expected = memory.recall_many(pl.DataFrame(questions, schema=list(WORDS)), top=10)
    by_query = expected.partition_by("query", maintain_order=True)
    for question, answers, rows in zip(questions, found, by_query, strict=True):
        (slot,) = WORDS.keys() - question.keys()
        assert [answer["stored"] for answer in answers] == [status == "stored" for status in rows["status"]]
        for name in ("score", "probability"):
            assert [answer[name] for answer in answers] == pytest.approx(rows[name].to_list(), abs=1e-4)
        scores = dict(zip(rows[slot], rows["score"], strict=True))
        for answer, label in zip(answers, rows[slot], strict=True):  # the order is the same up to ties
            assert answer["label"] == label or answer["score"] == pytest.approx(scores[label], abs=1e-4)


def test_withheld_answers_are_those_of_the_other_splits(open_live, memory):
    question = live.examples(memory.graph)[0]
    page = open_live()
    found = page.evaluate("(question) => window.liveMemory.recall(question, 1000)", question)
    other = pl.concat([memory.graph.table(memory.graph.split(name)) for name in ("valid", "test")])
    expected = other.filter(**question)["subject"].to_list()
    assert expected
    assert sorted(answer["label"] for answer in found if answer["withheld"]) == sorted(expected)


def ask_texts(page) -> dict[str, str]:
    return {word: page.get_by_label(word.capitalize(), exact=True).input_value() for word in WORDS.values()}


def test_a_link_asks_its_question(open_live, memory):
    stored = memory.graph.table(memory.graph.split("train")[:1]).row(0, named=True)
    page = open_live(f"#what={stored['predicate']}&whom={stored['object']}&when={stored['time']}")
    question = {name: label for name, label in stored.items() if name != "subject"}
    expected = memory.recall(**question, top=8)
    assert texts(page, "#live ol .label") == expected["subject"].to_list()
    assert texts(page, "#live ol .badge.stored, #live ol .badge.predicted") == expected["status"].to_list()
    assert texts(page, "#live ol .number")[0] == "100 %"
    assert page.locator("[role=status]").inner_text().startswith(f"Who? {stored['predicate']} · {stored['object']}")


def test_a_question_is_turned_by_keyboard_and_back(open_live, memory):
    page = open_live()
    before = ask_texts(page)
    best = texts(page, "#live ol .label")[0]
    page.get_by_role("button", name="Ask when").press("Enter")
    page.wait_for_url("**#who=*")
    assert ask_texts(page) == before | {"who": best, "when": ""}
    assert page.get_by_role("button", name="Ask when").get_attribute("aria-pressed") == "true"
    assert set(texts(page, "#live ol .label")) <= set(memory.graph.times.labels)
    page.go_back()
    page.wait_for_function("!location.hash")
    assert ask_texts(page) == before


def test_what_is_typed_is_completed_or_refused(open_live, memory):
    page = open_live()
    box = page.get_by_label("What", exact=True)
    box.fill("foreign MINISTER")
    box.press("Enter")
    page.wait_for_url("**#what=Foreign**")
    assert box.input_value() == "Foreign minister of"
    box.fill("Sells to")
    box.press("Enter")
    page.get_by_text("“Sells to” is no predicate of this memory.").wait_for()
    assert box.get_attribute("aria-invalid") == "true"
    assert page.locator("#live ol li").count() == 0
    box.fill("")
    box.press("Enter")
    page.locator("#live ol li").first.wait_for()
    assert set(texts(page, "#live ol .label")) <= set(memory.graph.predicates.labels)


def test_examples_are_links_to_questions(open_live):
    page = open_live()
    assert [text.split("?")[0] for text in texts(page, "#live .examples a")] == ["Who", "What", "Whom", "When"]
    page.locator("#live .examples a").last.click()
    page.locator("[role=status]", has_text="When?").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1100])
def test_the_page_fits_and_is_accessible(open_live, width, scheme):
    page = open_live(width=width, scheme=scheme)
    assert too_wide(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert violations(page) == []


def test_without_scripts_the_page_says_what_it_needs(open_live):
    assert "needs JavaScript" in open_live(scripts=False).locator("#live").inner_text()


def test_a_page_that_was_opened_as_a_file_says_that_it_needs_a_server(browser, folder):
    page = browser.new_page()
    page.goto((folder / "live.html").as_uri())
    assert "only from a web server" in page.locator("#live").inner_text()
    page.close()


def test_a_memory_that_cannot_be_loaded_is_named(browser, site):
    page = browser.new_page()
    page.route("**/memory.json", lambda route: route.fulfill(status=404))
    page.goto(f"{site}/live.html")
    page.get_by_role("alert").wait_for()
    assert "memory.json" in page.get_by_role("alert").inner_text()
    page.close()


def test_everything_that_the_page_adds_is_small(folder):
    added = [path for path in (folder / "live").iterdir() if path.name in FILES]
    assert len(added) == len(FILES)
    assert sum(path.stat().st_size for path in added) + (ROOT / "docs" / "live.md").stat().st_size <= MAX_BYTES


@pytest.mark.parametrize("name", ["page.css", "page.js", "scorer.js"])
def test_a_file_of_the_page_is_short_and_loads_nothing_from_elsewhere(name):
    text = (ROOT / "docs" / "live" / name).read_text(encoding="utf-8")
    assert text.startswith(("// ", "/* "))
    assert len(text.splitlines()) <= 200
    assert "://" not in text


@pytest.mark.long
def test_the_same_seed_writes_the_same_files(run_live, folder):
    assert run_live("--epochs", 1, "--out", folder / "again")[0] == 0
    for name in ("memory.json", "memory.safetensors"):
        assert (folder / "again" / name).read_bytes() == (folder / "live" / name).read_bytes()


@pytest.fixture
def run_live(monkeypatch, capsys):
    return lambda *words: run_main(lambda: typer.run(live.live), monkeypatch, capsys, *words)


def test_the_files_hold_the_tables_and_the_facts(memory, folder):
    tensors = load_file(folder / "live" / "memory.safetensors")
    about = json.loads((folder / "live" / "memory.json").read_text(encoding="utf-8"))
    assert tensors["time"].shape == (len(memory.graph.times), live.DIM, 2)
    assert tensors["stored"].tolist() == memory.graph.split("train").ids.tolist()
    assert about["labels"]["entity"] == list(memory.graph.entities.labels)
    assert about["mrr"].keys() >= WORDS.keys()


def test_other_memories_are_refused(small_world, memory, tmp_path):
    other = memory_of(random_model("complex", "both", sizes=small_world.sizes), small_world)
    with pytest.raises(UserError, match="the live page evaluates one episodic, reciprocal ComplEx .* got ComplEx, epi"):
        live.export(other, tmp_path)
    with pytest.raises(UserError, match="an earlier version calibrated this memory by its scores"):
        live.export(memory_of(memory.model, memory.graph), tmp_path)
