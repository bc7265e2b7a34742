"""Where figures come from: versions, machine, date and commit."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("recollect", "torch", "numpy", "numba", "polars")


def provenance() -> dict[str, Any]:
    """Return the versions of packages, the machine and the date."""
    return {
        "versions": {name: version(name) for name in PACKAGES} | {"python": platform.python_version()},
        "machine": {"system": platform.system(), "cores": os.cpu_count()},
        "date": datetime.now(UTC).date().isoformat(),
    }


@cache
def commit() -> str:
    """Return the commit of this checkout, with `-dirty` if files have changed since; "" outside a checkout."""
    git = shutil.which("git")
    if git is None:
        return ""
    here = [git, "-C", str(Path(__file__).parent)]
    is_tracked = _run([*here, "ls-files", "--error-unmatch", __file__])  # else an unrelated repository contains us
    described = _run([*here, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"])
    if is_tracked.returncode or described.returncode:
        return ""
    return described.stdout.strip()


def _run(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)
