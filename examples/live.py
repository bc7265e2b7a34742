"""The memory of the live page: the demonstration's world, learned by ComplEx alone, in two files that a browser reads.

`memory.safetensors` holds the embedding tables, the row of every time, and the ids of stored and withheld facts.
`memory.json` holds the labels, the calibration, how well withheld facts are recalled, and some questions.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recollect.cli.rendering import console
from recollect.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from recollect.graph.facts import EpisodicGraph
    from recollect.memory.memory import Memory

DIM, EPOCHS = 32, 8  # enough for this world, in some seconds
ASKED = {"subject": "President of", "predicate": "Trades with", "object": "Allied with", "time": "Ambassador of"}
# open slot of each example -> predicate of the fact that it asks about


def live(
    out: Annotated[Path, typer.Option(help="Folder of the two files.")] = Path("build/docs/live"),
    seed: Annotated[int, typer.Option(help="Seed of the world and of training.")] = 0,
    epochs: Annotated[int, typer.Option(help="Passes over the facts.")] = EPOCHS,
) -> None:
    """Learn the world of the demonstration without history and write what the page `live.html` loads.

    Example: `python -m examples.live --out build/docs/live`
    """
    for path in export(learn(seed=seed, epochs=epochs), out):
        console().print(f"{path}  {path.stat().st_size / 1000:.0f} kB", highlight=False, soft_wrap=True)


def learn(*, seed: int = 0, epochs: int = EPOCHS) -> Memory:
    """Return a memory of the world by one model alone."""
    from recollect.io.datasets import dataset
    from recollect.memory.memory import Memory
    from recollect.training.recipe import RECIPES

    recipe = replace(RECIPES["modern"], epochs=epochs, validate_every=epochs)
    graph = dataset("world", seed=seed)
    return Memory.learn(graph, model="complex", dim=DIM, recipe=recipe, history=False, seed=seed)


def export(memory: Memory, folder: Path) -> list[Path]:
    """Write a memory like that of `learn` as the page reads it, and return the files."""
    from safetensors.torch import save_file

    check_model(memory)
    folder.mkdir(parents=True, exist_ok=True)
    tensors, about = folder / "memory.safetensors", folder / "memory.json"
    save_file(page_tensors(memory), tensors)
    about.write_text(json.dumps(page_description(memory), ensure_ascii=False), encoding="utf-8")
    return [tensors, about]


def check_model(memory: Memory) -> None:
    """Raise UserError for a memory that the page cannot evaluate."""
    scorer = memory.scorer
    configs = [model.config for model in scorer.models]
    kinds = [(config.model, config.form, config.static, config.reciprocal) for config in configs]
    if scorer.history is not None or kinds != [("complex", "episodic", False, True)]:
        raise UserError(
            f"the live page evaluates one episodic, reciprocal ComplEx without static part and history; got {scorer}; "
            "learn it with model='complex', static=False, reciprocal=True, history=False"
        )
    if not memory.calibration.among_predicted:
        raise UserError("an earlier version calibrated this memory by its scores; learn it again for the live page")


def page_tensors(memory: Memory) -> dict[str, Tensor]:
    """Return the tables (N, dim, 2), inverse predicates last and times interpolated, and ids of facts (n, 4)."""
    import torch

    from recollect.graph.facts import Facts

    model, graph = memory.model, memory.graph
    withheld = Facts.concat([graph.split(name) for name in ("valid", "test") if name in graph.splits])
    with torch.no_grad():
        return {
            "entity": model.entity.detach().float().contiguous(),
            "predicate": model.predicate.detach().float().contiguous(),
            "time": model.rows("t").float().contiguous(),
            "stored": graph.split("train").ids.int().contiguous(),
            "withheld": withheld.ids.int().contiguous(),
        }


def page_description(memory: Memory) -> dict[str, Any]:
    """Return labels, calibration by slot, the MRR of withheld facts, and questions about some of them."""
    from recollect.graph.facts import SLOTS

    graph = memory.graph
    report = memory.evaluate("test").to_dict()
    return {
        "labels": {
            "entity": list(graph.entities.labels),
            "predicate": list(graph.predicates.labels),
            "time": list(graph.times.labels),
        },
        "calibration": {slot: memory.calibration.fits[slot] for slot in SLOTS},
        "highest": {slot: memory.calibration.highest[slot] for slot in SLOTS},
        "mrr": {slot: round(figures["mrr"], 3) for slot, figures in report["filtered"].items()},
        "examples": examples(graph),
    }


def examples(graph: EpisodicGraph) -> list[dict[str, str]]:
    """Return one question for each slot: the first withheld fact of some predicate, without its label of the slot."""
    withheld = graph.table(graph.split("test"))
    questions = []
    for slot, predicate in ASKED.items():
        fact = withheld.filter(predicate=predicate).row(0, named=True)
        questions.append({name: label for name, label in fact.items() if name != slot})
    return questions


if __name__ == "__main__":
    typer.run(live)
