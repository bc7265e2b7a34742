"""Plan a graph before there is data: memory, time, and the model and engines that suit it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from recollect.cli import options as opt
from recollect.cli.rendering import print_json, print_pairs

GIB = 2**30


def plan(
    entities: Annotated[int, typer.Option(help="Number of entities.")],
    times: Annotated[int, typer.Option(help="Number of times: days, months …")],
    facts: Annotated[int, typer.Option(help="Number of facts, or of raw event rows.")],
    predicates: Annotated[int, typer.Option(help="Number of predicates.")] = 100,
    memory: Annotated[
        float | None, typer.Option(metavar="GIB", help="Memory of the machine; by default what is free here.")
    ] = None,
    recipe: opt.RecipeName = "modern",
    as_json: opt.Json = False,
) -> None:
    """Estimate memory, time, model and engines for a graph.

    \b
    recollect plan --entities 7000 --times 365 --facts 90000
    recollect plan --entities 30000000 --times 1 --facts 100000000 --memory 16
    Next: recollect train --help
    """
    from recollect.cli.settings import choose_recipe
    from recollect.errors import UserError
    from recollect.graph.free_memory import free_memory
    from recollect.training.capacity import Demand
    from recollect.training.capacity import plan as plan_of

    if memory is not None and not memory > 0:
        raise UserError(f"a machine with {memory} GiB of memory cannot be planned for; wanted more than 0")
    chosen, _ = choose_recipe(recipe, None, None)
    demand = Demand(entities=entities, times=times, facts=facts, predicates=predicates)
    found = plan_of(demand, chosen, free_memory() if memory is None else int(memory * GIB))
    if as_json:
        print_json(found)
        return
    print_pairs(_shown(found))


def _shown(found: dict[str, Any]) -> dict[str, Any]:
    """Return what is printed of a plan."""
    shown = {
        "model": found["chosen"],
        "memory of the facts": _gib(found["store_bytes"]),
        "memory to plan for": _gib(found["memory_bytes"]),
        "tables": found["tables"],
        "raw events": f"{found['events']['engine']}, about {found['events']['seconds_to_read']:,} s",
    }
    training = found["training"]
    if training is not None:
        shown |= {
            "parameters": training["parameters"],
            "memory of training": f"{_gib(training['weight_bytes'])}, and {_gib(training['batch_bytes'])} for a batch",
            "an epoch": f"about {training['epoch_seconds']:,} s on two cores",
        }
    return shown


def _gib(count: int) -> str:
    return f"{count / GIB:.2g} GiB"
