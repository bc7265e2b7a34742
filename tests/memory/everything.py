"""Ask a memory everything, and list the facts that its answers call stored and those that they give as reasons.

`python -m tests.memory.everything FOLDER` prints them as JSON, as another process sees them.
"""

from __future__ import annotations

import json
import sys
from itertools import product

import polars as pl

from recollect import Memory, load

NAMES = ["subject", "predicate", "object", "time"]
SOME = ("e0", "e1")  # entities that are asked when
Fact = tuple[str, str, str, str]


def everything(memory: Memory) -> dict[str, set[Fact]]:
    """Return the facts that are called stored, by question, and the reasons of predicted answers."""
    graph = memory.graph
    entities, predicates, times = graph.entities.labels, graph.predicates.labels, graph.times.labels
    labels = dict(zip(NAMES, (entities, predicates, entities, times), strict=True))
    found: dict[str, set[Fact]] = {"know": set(), "when": set(), "timeline": set(), "reasons": set()}
    for slot in NAMES:
        others = [name for name in NAMES if name != slot]
        asked = pl.DataFrame(list(product(*(labels[name] for name in others))), schema=others, orient="row")
        answers = memory.recall_many(asked, top=999, explain=3)
        found[slot] = facts_of(answers.filter(status="stored"))
        found["reasons"] |= reasons_of(answers)
    for time in times:
        known = memory.know(as_of=time, include="stored", top=999)
        found["know"] |= facts_of(known.with_columns(time=pl.lit(time)))
    for triple in product(SOME, predicates, SOME):
        for first, last, _, status in memory.when(*triple).rows():
            if status == "stored":
                found["when"] |= {(*triple, time) for time in times if first <= time <= last}
        every = memory.probabilities(*triple).filter(status="stored")
        found["timeline"] |= {(*triple, time) for time in every["time"].to_list()}
    found["reasons"] |= reasons_of(memory.forecast(horizon=3, top=50, explain=5))
    return found


def facts_of(table: pl.DataFrame) -> set[Fact]:
    return set(table.select(NAMES).rows())


def reasons_of(table: pl.DataFrame) -> set[Fact]:
    reasons = table["why"].drop_nulls().to_list()
    return {(each["subject"], each["predicate"], each["object"], each["time"]) for why in reasons for each in why}


if __name__ == "__main__":
    print(json.dumps({name: sorted(facts) for name, facts in everything(load(sys.argv[1])).items()}))  # noqa: T201
