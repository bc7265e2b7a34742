"""Imports point down the house only, and nothing unsafe gets in."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import recollect

ROOT = Path(recollect.__file__).parent
LAYERS = [
    ["errors", "lanes", "threads"],
    ["seeds", "native"],
    ["kernels"],
    ["times"],
    ["facts"],
    ["known", "indicator", "losses", "grouped", "optimizers", "levels"],
    ["contraction"],
    ["episodes", "sources.variants", "sources.fields", "sources.cameo"],
    ["describe", "sources.assembly", "sources.fetch", "sources.blocks"],
    ["sources.formats", "sources.events"],
    ["sources.exchange"],
    ["sources.tables", "sources.world"],
    ["sources.published"],
    ["sources.derived"],
    ["sources"],
    ["models"],
    ["negatives", "batches"],
    ["recipes"],
    ["training"],
    ["ranks", "baselines"],
    ["metrics"],
    ["projection"],
    ["bundle"],
    ["learning"],
    ["memory"],
    ["plots", "shapes", "bounds"],
    ["contests", "search"],
    ["workers"],
    ["bench"],
    ["experiments.lab", "experiments.pages", "experiments.paper"],
    ["experiments.sizes", "experiments.tables", "experiments.rare", "experiments.projecting", "experiments.as_of"],
    ["experiments.benchmark"],
    ["experiments"],
    ["demo", "console"],
    ["cli_data"],
    ["", "cli"],
    ["__main__"],
]
LEVEL = {module: level for level, modules in enumerate(LAYERS) for module in modules}
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix("__init__").rstrip("."): path
    for path in ROOT.rglob("*.py")
}


def test_every_file_has_its_place():
    assert set(FILES) == set(LEVEL)


@pytest.mark.parametrize("module", FILES)
def test_imports_point_down(module):
    for node in ast.walk(ast.parse(FILES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "recollect":
            package = (node.module or "").removeprefix("recollect").removeprefix(".")
            for name in node.names:  # `from recollect import demo` names a file too
                inner = f"{package}.{name.name}".removeprefix(".")
                target = inner if inner in LEVEL else package
                assert LEVEL[target] < LEVEL[module], f"{module} imports {target}"


@pytest.mark.parametrize("module", FILES)
def test_no_pickle_and_no_print(module):
    text = FILES[module].read_text(encoding="utf-8")
    for word in ("pickle", "torch.load(", "torch.save(", "weights_only", "eval(", "exec(", " print("):
        assert word not in text
