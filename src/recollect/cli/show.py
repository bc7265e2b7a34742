"""Show what a saved memory is and what can be asked of it."""

from __future__ import annotations

import shlex
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect.cli import options as opt
from recollect.cli.rendering import print_json, print_line, print_pairs

if TYPE_CHECKING:
    from recollect.memory.memory import Memory


def show(memory: opt.MemoryDir, as_json: opt.Json = False) -> None:
    """Show what a memory is, how it was trained, what to ask it.

    \b
    recollect show world.memory
    Next: recollect ask world.memory
    """
    from recollect.memory.memory import load

    about = describe_memory(load(memory), memory)
    if as_json:
        print_json(about)
    else:
        print_memory(about)


def describe_memory(memory: Memory, folder: Path) -> dict[str, Any]:
    """Return what `show --json` prints of a memory that is saved at `folder`."""
    from recollect.graph.facts import SLOT_NAMES
    from recollect.io.atomic import existing_folder
    from recollect.memory.bundle.folder import ABOUT

    existing = existing_folder(folder)
    graph, training = memory.graph, memory.about.get("training")
    return {
        "memory": str(folder),
        "data": graph.name,
        "entities": len(graph.entities),
        "predicates": len(graph.predicates),
        "times": len(graph.times),
        "grain": graph.times.grain,
        "from": graph.times.label(0),
        "to": graph.times.label(len(graph.times) - 1),
        "as_of": memory.about.get("projection", {}).get("as_of"),
        "facts": graph.counts,
        "answers_by": str(memory.scorer),
        "history": memory.scorer.history is not None,
        "training": training and {name: training[name] for name in ("epochs", "best_epoch", "valid_mrr")},
        "calibrated": [SLOT_NAMES[slot] for slot in memory.calibration.fits if slot in SLOT_NAMES],
        "saved": datetime.fromtimestamp((existing / ABOUT).stat().st_mtime).isoformat(" ", "minutes"),
        "bytes": sum(file.stat().st_size for file in existing.iterdir()),
        "next": next_commands(memory, folder),
    }


def next_commands(memory: Memory, folder: Path) -> list[str]:
    """Return commands that make sense for this memory; the question is about one of its facts."""
    graph, words = memory.graph, [["ask"]]
    fact = example_fact(memory)
    if fact is not None:
        given = ["subject", "predicate", *(["time"] if "t" in memory.scorer.slots else [])]
        words.append(["recall", *(word for name in given for word in (f"--{name}", fact[name]))])
    words.append(
        ["know", *(["--as-of", graph.times.label(len(graph.times) // 2)] if "t" in memory.scorer.slots else [])]
    )
    if "test" in graph.splits:
        words.append(["evaluate"])
    return [shlex.join(["recollect", command, str(folder), *rest]) for command, *rest in words]


def example_fact(memory: Memory) -> dict[str, str] | None:
    """Return the labels of one stored fact, by slot; None if there is none."""
    from recollect.graph.runs import split_runs

    facts = split_runs(memory.graph)["train"].true().first
    middle = len(facts) // 2
    return memory.graph.table(facts[middle : middle + 1]).row(0, named=True) if len(facts) else None


def print_memory(about: dict[str, Any]) -> None:
    """Print the description of a memory on less than a screen."""
    stored, *others = [f"{count:,} {'stored' if name == 'train' else name}" for name, count in about["facts"].items()]
    training = about["training"]
    trained = "no training"
    if training:
        trained = f"{training['epochs']} epochs, the best {training['best_epoch']}"
        if training["valid_mrr"] is not None:
            trained += f", validation MRR {training['valid_mrr']:.3f}"
    calibrated = about["calibrated"]
    size = about["bytes"]
    span = f"{about['times']:,} ({about['grain']}, {about['from']} to {about['to']})"
    print_pairs(
        {
            "memory": about["memory"],
            "data": about["data"] + (f", as of {about['as_of']}" if about["as_of"] else ""),
            "facts": f"{stored}" + (f"; not stored: {', '.join(others)}" if others else ""),
            "entities": about["entities"],
            "predicates": about["predicates"],
            "times": span,
            "answers by": about["answers_by"],
            "trained": trained,
            "probabilities": f"calibrated for {', '.join(calibrated)}" if calibrated else "not calibrated",
            "saved": f"{about['saved']}, {size / 1e6:,.1f} MB" if size >= 1e5 else f"{about['saved']}, {size:,} bytes",
        }
    )
    print_line("next:")
    for command in about["next"]:
        print_line(f"  {command}")
