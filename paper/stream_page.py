"""The page of the stream study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paper.markdown import markdown_table, number
from paper.stream_questions import ASKED, GROUPS

TITLES = {
    "frozen": "frozen",
    "ours": "ours",
    "warm": "warm start",
    "scratch": "from scratch",
    "whole": "`Memory.learn`",
}
NAMES = {"history": "History alone"}
_MODEL = (
    ", and a model for as many epochs as the first one was found to need, in one training, weighted and calibrated as "
    "the first. This is the cheapest retraining: `Memory.learn` chooses all that anew and trains twice. *Warm start* "
    "trains all tables further on all facts, from the last ones on, for 4 epochs, and takes the mean of the tables "
    "before and after: what `consolidate` does. The model is ConT with a static part, dims 60 / 10. "
)
SLOTS = ("subject", "predicate", "object", "time")


def page(found: dict[str, Any], _folder: Path) -> str:
    """Return the page: a section per memory."""
    return "\n\n".join([_intro(found), *(part for memory in found["memories"] for part in _section(found, memory))])


def _intro(found: dict[str, Any]) -> str:
    plan, facts = found["plan"], found["facts"]
    before, after = found["sizes"]["before"], found["sizes"]["after"]
    days = plan["days"]
    return "\n\n".join(
        [
            f"`{plan['data']}` in time order. A memory of the first {before['time']} days ({facts['base']:,} facts) "
            f"then lives through {days} more, one at a time. Each day all its facts are *predicted* from what was "
            f"learned before; a fixed-hash 80 % of them is learned ({facts['learned']:,} in all); then the other 20 % "
            f"({facts['withheld']:,}) is asked for, *withheld*. *Old* are {facts['old']:,} facts of the first days "
            "that no memory ever learns. Figures are filtered MRR (the filter knows all facts of the same time, ties "
            "count half): *who* of subjects and objects together, *what* of predicates, *when* of times.",
            f"Candidates are the entities known so far and those of the day that is asked about: {before['entity']:,} "
            f"before the first day, {after['entity']:,} after the last, {after['entity'] - before['entity']:,} of them "
            f"new ({(after['entity'] - before['entity']) / days:.1f} a day, {facts['learned'] / days:.0f} facts "
            f"learned a day), {after['predicate'] - before['predicate']} new predicates.",
            f"*Frozen* learns nothing after the first {before['time']} days; it only knows that the new labels and "
            "days exist. *Ours* is `memory.remember` without the journal: history is updated exactly, rows of new "
            "entities, predicates and days are solved for, nothing else moves. *From scratch* learns all facts anew "
            f"after {_moments(found)}: history with all its "
            "fits" + (_MODEL if plan["with_model"] else ". ") + f"Seed {plan['seed']}. CPU-seconds are those of one "
            "learning, on one thread of a machine that was busy with other work, which makes them higher. "
            f"Settings were chosen on 30 days before these {days}. That a model keeps its full weight for predicates "
            "and times of new days was chosen there too, after a first run had shown a low *when* on day 31.",
        ]
    )


def _moments(found: dict[str, Any]) -> str:
    """Return on which days memories are trained again, in words."""
    first, *between, last = map(str, found["moments"])
    return f"days {first} and {last}" if not between else f"days {first}, {between[0]}, … {last}"


def _section(found: dict[str, Any], memory: dict[str, Any]) -> list[str]:
    name = NAMES.get(memory["name"], "A model and history")
    return [
        f"## {name}",
        _at_moments(found, memory),
        *([_by_day(memory)] if memory["days"] else []),
        "### New entities",
        _new_entities(memory),
        "### Calibration",
        _calibration(memory),
    ]


def _at_moments(found: dict[str, Any], memory: dict[str, Any]) -> str:
    """Return the table of all systems on the days of retraining."""
    scratch = memory["moments"]["scratch"]
    base = memory["base_old"]["who"]
    rows = []
    for system, figures in memory["moments"].items():
        withheld, old, predicted = figures["withheld"], figures["old"]["who"], figures["predicted"]
        seconds = memory["days"].get(system, figures)["cpu_seconds"]
        share = withheld["who"] / scratch["withheld"]["who"]
        cost = scratch["cpu_seconds"] / seconds if seconds else None
        rows.append(
            [TITLES[system], *(number(withheld.get(name), 4) for name in ASKED), f"{100 * share:.1f} %",
             number(old, 4), f"{old - base:+.4f}", number(predicted.get("who"), 4), number(predicted.get("what"), 4),
             _seconds(seconds), "–" if cost is None else f"1/{cost:,.0f}" if cost > 1 else "1"]
        )  # fmt: skip
    head = [
        "",
        "withheld who",
        "what",
        "when",
        "of scratch",
        "old who",
        "change",
        "next day who",
        "what",
        "CPU-s",
        "cost",
    ]
    head[0] = f"{memory['gain']['scratch']['questions']:,} questions"
    gain = memory["gain"]["scratch"]
    return "\n\n".join(
        [
            f"After {_moments(found)}: what was withheld on the last {found['plan']['every']} days, old facts, and the "
            "day that follows. *Change* is relative to "
            "before the first day. *CPU-s* are those of one day's facts for ours, of one training for others.",
            markdown_table(head, rows),
            f"Ours less from scratch, who: {gain['mean']:+.4f} ± {gain['error']:.4f} over {gain['questions']:,} "
            f"questions (paired; standard error). `Memory.learn` of the base took {memory['base_cpu_seconds']:.0f} "
            "CPU-seconds.",
        ]
    )


def _by_day(memory: dict[str, Any]) -> str:
    """Return the table of the systems that are asked every day."""
    rows = []
    for system, figures in memory["days"].items():
        predicted, withheld = figures["predicted"], figures["withheld"]
        rows.append(
            [TITLES[system], number(predicted["who"], 4), number(predicted["what"], 4),
             *(number(withheld.get(name), 4) for name in ASKED), _seconds(figures["cpu_seconds"])]
        )  # fmt: skip
    head = ["every day", "predicted who", "what", "withheld who", "what", "when", "CPU-s a day"]
    return markdown_table(head, rows)


def _new_entities(memory: dict[str, Any]) -> str:
    """Return the tables of questions about new entities by number of facts seen of them."""
    parts = [
        "Facts of entities that occur after the first days only, by the number of learned facts of the entity when "
        "the question is asked (of two new ones, the rarer). *Asked*: the new entity is the answer. *Given*: it is "
        "part of the question.",
    ]
    for key, title in (("new_withheld", "withheld"), ("new_predicted", "predicted")):
        table = memory[key]
        if not table:
            continue
        systems = [name for name in next(iter(table.values())) if name != "questions"]
        rows = []
        for group in GROUPS:
            cells = [table[f"{group}, {role}"] for role in ("asked", "given")]
            figures = [number(cell[system]) for cell in cells for system in systems]
            rows.append([group, *(cell["questions"] for cell in cells[:1]), *figures])
        head = [title, "facts"]
        head += [f"{TITLES[system]}, {role}" for role in ("asked", "given") for system in systems]
        parts.append(markdown_table(head, rows))
    return "\n\n".join(parts)


def _calibration(memory: dict[str, Any]) -> str:
    """Return the table of calibration errors after the last day."""
    rows = []
    for system, figures in memory["last"].items():
        errors = [figures["calibration"][slot] for slot in SLOTS]
        rows.append(
            [TITLES[system], number(figures["who"], 4), *(number(error["likely_error"], 4) for error in errors),
             *(number(error["expected_error"], 6) for error in errors)]
        )  # fmt: skip
    head = ["after the last day", "all withheld, who", *(f"likely {slot}" for slot in SLOTS), *SLOTS]
    return "\n\n".join(
        [
            "Expected calibration error of predicted answers to questions for withheld facts of all days, after the "
            "last: of answers with a probability of at least 1 % (*likely*), and of all. Ours has the calibration of "
            "the first days; history from scratch is freshly calibrated.",
            markdown_table(head, rows),
        ]
    )


def _seconds(value: float) -> str:
    return "–" if not value else number(value, 3 if value < 10 else 0)
