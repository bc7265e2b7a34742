"""Shared fixtures: small graphs made here, and real data where it is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from recollect import EpisodicGraph, Facts, Memory, dataset
from recollect.cli.main import main
from recollect.evaluation.calibration import UNCALIBRATED
from recollect.memory.answering.scorer import MemoryScorer
from recollect.models.config import ModelConfig
from recollect.models.tensor_model import TensorModel
from recollect.models.zoo import MODELS, build_model

pytest_plugins = ["service_fixtures", "browser_fixtures"]

# a busy machine is no failure; the default search stays the same on every run
settings.register_profile("recollect", deadline=None, derandomize=True)
settings.load_profile("recollect")

SIZES = {"entity": 5, "predicate": 3, "time": 4}
FORMED = [
    (name, form)
    for name, model in MODELS.items()
    for form in ("episodic", "semantic", "both")
    if all(model.has_form(part) for part in (("episodic", "semantic") if form == "both" else (form,)))
]
ALONE = [(name, form) for name, form in FORMED if form != "both"]  # of one equation

# where an equation joins axes of several kinds, they share one rank
UNEQUAL = {
    ("tucker", "episodic"): {"dim": 3, "predicate_dim": 2, "time_dim": 4},
    ("tucker", "semantic"): {"dim": 3, "predicate_dim": 2},
    ("tree", "episodic"): {"dim": 3, "predicate_dim": 2, "time_dim": 4},
    ("tree", "semantic"): {"dim": 3, "predicate_dim": 2},
    ("cont", "episodic"): {"dim": 3, "predicate_dim": 2},
    ("cont", "both"): {"dim": 3, "predicate_dim": 2},
    ("tucker", "both"): {"dim": 3, "predicate_dim": 2, "time_dim": 4},
    ("tree", "both"): {"dim": 3, "predicate_dim": 2, "time_dim": 4},
}


@pytest.fixture(autouse=True, scope="session")
def _threads() -> None:
    """Compute on one thread by default: tests run side by side, one to a core."""
    torch.set_num_threads(int(os.environ.get("RECOLLECT_TEST_THREADS", "1")))


@pytest.fixture(scope="session")
def small_world() -> EpisodicGraph:
    return dataset("world", countries=6, years=2)


@pytest.fixture(scope="session")
def real_data() -> Path:
    folder = os.environ.get("RECOLLECT_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("real data: set RECOLLECT_DATA to a folder that holds it, such as one with icews14/")
    return Path(folder)


SMALL = [
    *("--model", "complex", "--dim", "4", "--recipe", "paper", "--epochs", "3"),
    *("--set", "validate_every=1", "--set", "batch_size=128"),
]  # options of a training that takes a moment


@pytest.fixture(scope="session")
def facts_csv(tmp_path_factory) -> Path:
    """A file of facts, small enough to learn at once."""
    path = tmp_path_factory.mktemp("data") / "facts.csv"
    rows = [f"e{i % 7},r{i % 3},e{(i * i) % 5},{2000 + i % 12}" for i in range(400)]
    path.write_text("subject,predicate,object,time\n" + "\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="session")
def trained_memory(facts_csv, tmp_path_factory) -> Path:
    """The memory of `facts_csv`, trained by the command line; tests must not change it."""
    out = tmp_path_factory.mktemp("memory") / "m"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            sys, "argv", ["recollect", "train", str(facts_csv), *SMALL, "--split", "random", "--out", str(out)]
        )
        with pytest.raises(SystemExit) as stopped:
            main()
    assert not stopped.value.code
    return out


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command in this process: (exit code, standard output, standard error)."""

    def call(*words: object, columns: int = 200) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["recollect", *map(str, words)])
        monkeypatch.setenv("COLUMNS", str(columns))
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return int(stopped.value.code or 0), captured.out, captured.err

    return call


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def own_scores(model: TensorModel, facts: Facts, slot: str) -> torch.Tensor:
    """What scoring all candidates of a slot gives to each fact's own."""
    return model.score_against(facts, slot).gather(1, facts.column(slot)[:, None])[:, 0]


def random_facts(n: int, sizes: dict[str, int] = SIZES, seed: int = 0) -> Facts:
    g = generator(seed)
    columns = [torch.randint(sizes[kind], (n,), generator=g) for kind in ("entity", "predicate", "entity", "time")]
    return Facts.from_columns(*columns)


def model_config(name: str, form: str, dim: int = 4, **options: object) -> ModelConfig:
    """Return the config of a model; the form "both" is an episodic model with a static part."""
    structure = {"form": "episodic", "static": True} if form == "both" else {"form": form}
    return ModelConfig(model=name, dim=dim, **structure, **options)


def random_model(
    name: str, form: str, dim: int = 4, dtype: str = "float64", sizes: dict[str, int] = SIZES, **options: object
) -> TensorModel:
    """Return a model whose weights are far from zero, so that a wrong term shows."""
    model = build_model(model_config(name, form, dim, dtype=dtype, **options), sizes, generator=generator(1))
    g = generator(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=g)
    return model


def memory_of(model: TensorModel, graph: EpisodicGraph) -> Memory:
    """Return a memory of a model alone, without history or calibration."""
    return Memory(MemoryScorer((model,), None, {}), graph, UNCALIBRATED, {})


@pytest.fixture
def drawn(monkeypatch):
    """Return the list of figures that were saved, with all text laid out."""
    from matplotlib.figure import Figure

    figures = []

    def savefig(figure: Figure, path: Path) -> None:
        figure.canvas.draw()
        figures.append(figure)

    monkeypatch.setattr(Figure, "savefig", savefig)
    return figures
