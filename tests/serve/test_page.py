"""The page in a real browser: questions by keyboard, timeline, slider, changes, links, colours and widths."""

from __future__ import annotations

from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from browser_fixtures import served, settled, texts, violations
from recollect.graph.times import TimeAxis, time_bin
from recollect.serve.http.guard import Access
from recollect.serve.http.rest import create_app

pytestmark = pytest.mark.xdist_group("browser")
SLOTS = {"who": "subject", "what": "predicate", "whom": "object", "when": "time"}


def link(**parameters: str) -> str:
    return f"?{urlencode(parameters)}"


def parameters(page) -> dict[str, str]:
    """Return the parameters of the URL."""
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def fact_texts(edges) -> list[str]:
    return [f"{edge.subject} · {edge.predicate} · {edge.object}" for edge in edges]


@pytest.fixture(scope="module")
def fact(world_memory) -> dict[str, str]:
    """A stored fact by the boxes of the page."""
    graph = world_memory.graph
    row = graph.table(graph.split("train")[100:101]).row(0, named=True)
    return {box: row[slot] for box, slot in SLOTS.items()}


def views(fact: dict[str, str]) -> dict[str, str]:
    """Return the query string of each view."""
    without = {box: link(**{name: label for name, label in fact.items() if name != box}) for box in fact}
    return {
        "start": "",
        **without,
        "fact": link(**fact),
        "know": link(what=fact["what"], when=fact["when"]),
        "then": link(view="then", entity=fact["whom"], at=fact["when"]),
        "everything": "?view=then&entity=",
        "changes": link(view="changes", since="2000-03", until="2000-05"),
        "teach": "?view=teach",
        "about": "?view=about",
        "problem": link(who="Nobody", what=fact["what"], when=fact["when"]),
    }


# --- ask ---


def test_a_question_is_asked_with_the_keyboard_alone(open_page, world_memory, fact):
    page = open_page()
    page.get_by_role("combobox", name="Who", exact=True).wait_for()
    page.keyboard.press("Tab")  # to the link that skips the header
    while page.evaluate("document.activeElement.name") != "who":
        page.keyboard.press("Tab")
    for box in ("who", "what"):
        page.keyboard.type(fact[box][:-1].lower())
        page.locator("[role=option]", has_text=fact[box]).first.wait_for()
        while page.locator("[role=option][aria-selected=true] span").all_inner_texts() != [fact[box]]:
            page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        assert page.locator(f"input[name={box}]").input_value() == fact[box]
        page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.type(fact["when"])
    page.keyboard.press("Enter")
    found = texts(page, ".answers .answer")
    assert parameters(page) == {name: fact[name] for name in ("who", "what", "when")}
    expected = world_memory.recall(subject=fact["who"], predicate=fact["what"], time=fact["when"], top=20)
    assert found == expected["object"].to_list()
    assert texts(page, ".answers .badge") == expected["status"].to_list()


def test_completion_follows_the_combobox_pattern(open_page, world_memory):
    page = open_page()
    box = page.get_by_role("combobox", name="Who", exact=True)
    box.click()
    page.get_by_role("option").first.wait_for()
    assert box.get_attribute("aria-expanded") == "true"
    assert box.get_attribute("aria-activedescendant") is None
    listbox = page.locator(f"[id='{box.get_attribute('aria-controls')}']")
    assert listbox.get_attribute("role") == "listbox"
    page.keyboard.press("ArrowUp")  # from the box to the last option
    options = page.get_by_role("option")
    last = options.last.get_attribute("id")
    assert box.get_attribute("aria-activedescendant") == last
    page.keyboard.press("Escape")
    assert box.get_attribute("aria-expanded") == "false"
    assert box.input_value() == ""
    page.keyboard.type("zzz-no-such-label")
    page.wait_for_timeout(300)
    assert box.get_attribute("aria-expanded") == "false"
    page.keyboard.press("Escape")  # clears the box
    assert box.input_value() == ""


def test_an_open_box_is_what_the_button_asks_for(open_page, fact):
    page = open_page(link(**fact))
    for box, word in {"who": "Who?", "what": "What?", "whom": "Whom?", "when": "When?"}.items():
        page.locator(f"input[name={box}]").fill("")
        assert page.locator("form .primary").inner_text() == word
        page.locator(f"input[name={box}]").fill(fact[box])
    assert page.locator("form .primary").inner_text() == "How likely?"


def test_why_shows_the_evidence_of_a_predicted_answer(open_page, world_memory, fact):
    page = open_page(views(fact)["whom"])
    row = page.locator(".answers > li.predicted").first
    label = row.locator(".answer").inner_text()
    row.get_by_role("button", name="Why").click()
    row.locator(".reasons p").first.wait_for()
    asked = {slot: [fact[box]] for box, slot in SLOTS.items()} | {"object": [label]}
    reasons = world_memory.probability(asked, explain=4)["why"][0]
    shown = [text.splitlines()[1] for text in texts(page, ".evidence li")]
    assert shown == [f"{each['subject']} · {each['predicate']} · {each['object']}" for each in reasons]


def test_what_holds_is_listed_as_of_the_time(open_page, world_memory, fact):
    page = open_page(views(fact)["know"])
    expected = world_memory.know(predicate=fact["what"], as_of=fact["when"], top=20)
    rows = [f"{s} · {p} · {o}" for s, p, o in expected.select("subject", "predicate", "object").rows()]
    assert texts(page, ".answers .answer") == rows


def test_a_problem_is_shown_in_the_words_of_the_service(open_page, fact):
    page = open_page(views(fact)["problem"], refused=True)
    assert "Nobody" in page.get_by_role("alert").inner_text()
    assert page.get_by_role("alert").inner_text().startswith("Unknown entity")


# --- timeline ---


def test_the_timeline_draws_probabilities_and_names_stored_intervals(open_page, service, fact):
    page = open_page(views(fact)["when"])
    page.locator(".chart canvas").wait_for()
    drawn = page.evaluate(
        "(() => { const c = document.querySelector('.chart canvas');"
        "return c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((each) => each > 0) })()"
    )
    assert drawn
    label = page.locator(".chart").get_attribute("aria-label")
    assert label.startswith("Probability from 2000-01 to 2001-12; highest")
    caption = page.locator("figcaption").inner_text()
    assert fact["when"][:4] in caption
    assert caption.startswith("Stored")


def test_a_click_on_the_timeline_asks_about_that_time(open_page, fact):
    page = open_page(views(fact)["when"])
    box = page.locator(".chart .u-over").bounding_box()
    page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 20)
    page.mouse.click(box["x"] + box["width"] - 2, box["y"] + 20)
    page.locator(".verdict").wait_for()
    assert parameters(page)["when"] == "2001-12"


# --- then ---


def test_the_slider_redraws_what_was_true_then(open_page, service, fact):
    from recollect.serve.messages import Picture

    page = open_page(link(view="then", entity=fact["whom"], at="2000-06"))
    slider = page.get_by_role("slider", name="Then")
    slider.focus()
    texts(page, ".facts li .fact")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    later = slider.get_attribute("aria-valuetext")
    assert later == "2000-08"
    page.wait_for_url(lambda url: f"at={later}" in url)
    page.get_by_role("heading", name=f"True as of {later}").wait_for()
    settled(page)
    part = service.graph(Picture(entity=fact["whom"], as_of=later, top=100, ended=60))
    assert texts(page, ".facts:not(.ended) .fact") == fact_texts(edge for edge in part.edges if edge.holds)
    assert texts(page, ".facts.ended .fact") == fact_texts(edge for edge in part.edges if not edge.holds)
    held = {edge.subject for edge in part.edges if edge.holds} | {edge.object for edge in part.edges if edge.holds}
    drawn = {each.get_attribute("aria-label").partition(":")[0] for each in page.locator(".spoke:not(.ended) a").all()}
    assert drawn == held - {fact["whom"]}
    assert page.locator(".spoke.ended").count() > 0


def test_neighbours_keep_their_places_as_time_moves(open_page, fact):
    page = open_page(views(fact)["then"])
    page.locator(".spoke").first.wait_for()
    settled(page)

    def places() -> dict[str, tuple[str, str]]:
        circles = page.locator(".spoke a").all()
        return {
            each.get_attribute("aria-label").partition(":")[0]: (
                each.locator("circle").get_attribute("cx"),
                each.locator("circle").get_attribute("cy"),
            )
            for each in circles
        }

    before = places()
    page.get_by_role("button", name="Earlier").click()
    page.wait_for_url(lambda url: fact["when"] not in url)
    settled(page)
    after = places()
    common = before.keys() & after.keys()
    assert common
    assert {label: before[label] for label in common} == {label: after[label] for label in common}


def test_a_neighbour_leads_to_its_own_graph(open_page, fact):
    page = open_page(views(fact)["then"])
    neighbour = page.locator(".spoke a").first
    label = neighbour.get_attribute("aria-label").partition(":")[0]
    neighbour.focus()
    page.keyboard.press("Enter")
    page.locator("text.center", has_text=label[:12]).wait_for()
    assert parameters(page) == {"view": "then", "entity": label, "at": fact["when"]}


def test_without_an_entity_the_commonest_one_is_shown(open_page, service):
    from recollect.serve.messages import Completion

    page = open_page("?view=then")
    (commonest,) = service.labels(Completion(top=1)).labels
    page.locator("text.center").wait_for()
    assert page.locator("text.center").text_content() == commonest.label


# --- changes ---


def test_changes_lists_what_began_and_what_ended(open_page, service, fact):
    from recollect.serve.messages import Between

    page = open_page(link(view="changes", since="2000-03", until="2000-05", entity=fact["whom"]))
    found = service.changes(Between(since="2000-03", until="2000-05", entity=fact["whom"], top=200))
    assert found.began
    page.locator(".changes .fact").first.wait_for()
    began, ended = page.locator(".changes section").all()
    assert began.locator(".fact").all_inner_texts() == fact_texts(found.began)
    assert ended.locator(".fact").all_inner_texts() == fact_texts(found.ended)


# --- about ---


def test_about_plots_the_reliability_of_each_part(open_page, service):
    page = open_page("?view=about")
    page.locator(".plot").wait_for()
    reliability = service.reliability()
    for word, slot in zip(("Who", "What", "Whom", "When"), reliability.slots, strict=True):
        page.get_by_role("button", name=word, exact=True).click()
        assert page.locator(".plot circle").count() == len(slot.bins)
        counts = [text.split("\t")[-1].replace(",", "") for text in texts(page, ".measured tbody tr")]
        assert [int(count) for count in counts] == [each.candidates for each in slot.bins]


# --- every view ---


def test_every_view_is_in_the_url_and_the_back_button_returns(open_page, fact):
    page = open_page()
    page.get_by_role("link", name="Whom?").click()
    page.locator(".answers .answer").first.wait_for()
    asked = page.url
    first = page.locator(".answers .answer").first.inner_text()
    page.get_by_role("navigation").get_by_role("link", name="Changes").click()
    page.locator(".changes .facts").first.wait_for()
    page.go_back()
    assert page.url == asked
    assert texts(page, ".answers .answer")[0] == first
    assert page.locator("input[name=who]").input_value() == parameters(page)["who"]
    page.reload()
    assert texts(page, ".answers .answer")[0] == first
    page.go_back()
    page.get_by_role("heading", name="Leave open what you want to know").wait_for()
    page.wait_for_function("document.title.startsWith('Ask')")


def test_axe_finds_no_violation_in_answers_with_their_reasons(open_page, fact):
    page = open_page(views(fact)["whom"], scheme="dark")
    page.locator(".predicted .why").first.click()
    settled(page)
    page.get_by_role("combobox", name="Who", exact=True).click()
    page.get_by_role("option").first.wait_for()
    assert violations(page) == []


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation_in_any_view(open_page, fact, scheme):
    page = open_page(scheme=scheme, refused=True)
    address, found = page.url, {}
    for name, query in views(fact).items():
        page.goto(address + query)
        settled(page)
        found[name] = violations(page)
    assert {name: rules for name, rules in found.items() if rules} == {}


def test_nothing_scrolls_sideways_at_360_pixels(open_page, fact):
    page = open_page(width=360, refused=True)
    address = page.url
    for name, query in views(fact).items():
        page.goto(address + query)
        settled(page)
        assert (name, page.evaluate("document.documentElement.scrollWidth")) == (name, 360)


def test_the_switch_turns_the_colours_and_is_remembered(open_page):
    page = open_page()
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)
    page.get_by_role("button", name="Dark").click()
    dark = page.evaluate(colour)
    assert dark != light
    page.reload()
    page.get_by_role("button", name="Dark", pressed=True).wait_for()
    assert page.evaluate(colour) == dark


def test_a_token_is_asked_for_and_sent(open_page, service, fact):
    with served(create_app(service, Access(token="0123456789abcdef"))) as address:
        page = open_page(views(fact)["whom"], at=address, refused=True)
        page.get_by_label("Token of this memory").fill("0123456789abcdef")
        page.keyboard.press("Enter")
        assert fact["whom"] in texts(page, ".answers .answer")


GRAINS = {
    "year": ["1898", "1907"],
    "quarter": ["1999-Q3", "2002-Q1"],
    "month": ["1999-11", "2001-02"],
    "week": ["2015-W52", "2016-W01", "2020-W53", "2021-W01"],
    "day": ["2015-12-30", "2016-03-02"],
    "hour": ["2016-02-28T22", "2016-03-01T03"],
    "ordinal": ["-3", "9"],
}


@pytest.mark.parametrize("grain", GRAINS)
def test_times_have_the_labels_of_the_service(open_page, grain):
    times = TimeAxis.spanning(grain, [time_bin(label, grain) for label in GRAINS[grain]])
    about = {"grain": times.grain, "first": times.label(0), "last": times.label(len(times) - 1), "count": len(times)}
    page = open_page()
    shown = page.evaluate(
        "async (times) => { const { Axis } = await import('/static/times.js'); const axis = new Axis(times);"
        "const labels = [...Array(times.count).keys()].map((index) => axis.label(index));"
        "return [labels, labels.map((label) => axis.index(label)), axis.index('soon') ?? null] }",
        about,
    )
    assert shown == [[times.label(i) for i in range(len(times))], list(range(len(times))), None]
