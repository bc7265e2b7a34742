"""Run the command of a module in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest


def run_main(
    main: Callable[[], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object
) -> tuple[int, str, str]:
    """Return (exit code, standard output, standard error) of `main` with these arguments."""
    monkeypatch.setattr(sys, "argv", ["command", *map(str, words)])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as stopped:
        main()
    captured = capsys.readouterr()
    return int(stopped.value.code or 0), captured.out, captured.err
