"""Everything is imported, and a memory works, without the modules and functions that only POSIX systems have."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# what Python's documentation names as not available on Windows, as far as a library might want it
MODULES = "crypt fcntl grp nis posix pty pwd readline resource spwd syslog termios tty"
OS = """
    fork forkpty register_at_fork sched_setaffinity sched_yield getuid geteuid getgid getegid getpgid
    getloadavg killpg setsid nice mkfifo mknod chown lchown fchown chroot statvfs fstatvfs pread pwrite preadv pwritev
    readv writev sendfile posix_fallocate posix_fadvise posix_spawn fdatasync sync lockf memfd_create
    wait wait3 wait4 WIFEXITED WIFSIGNALED sysconf uname O_DIRECTORY O_SYNC
"""
SIGNALS = (
    "SIGKILL SIGHUP SIGQUIT SIGUSR1 SIGUSR2 SIGALRM SIGCHLD SIGPIPE SIGSTOP SIGCONT alarm setitimer pthread_sigmask"
)
MMAP = (
    "MADV_WILLNEED MADV_RANDOM MADV_SEQUENTIAL MADV_DONTNEED MAP_SHARED MAP_PRIVATE MAP_ANONYMOUS PROT_READ PROT_WRITE"
)

# dependencies may use what a system has: they are imported first, with all of recollect, which is then imported anew
SCRIPT = """
import importlib
import mmap
import os
import pkgutil
import signal
import sys


def import_all():
    package = importlib.import_module("recollect")
    modules = [package]
    for found in pkgutil.walk_packages(package.__path__, "recollect."):
        if found.name != "recollect.__main__":  # it runs the command line
            modules.append(importlib.import_module(found.name))
    return modules


count = len(import_all())
MODULES, OS, SIGNALS, MMAP = (words.split() for words in sys.argv[1:])
for name in [name for name in sys.modules if name.split(".")[0] == "recollect"]:
    del sys.modules[name]
for name in MODULES:
    sys.modules[name] = None
for module, names in ((os, OS), (signal, SIGNALS), (mmap, MMAP)):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
assert len(import_all()) == count > 100
"""
MEMORY = """
from pathlib import Path

import polars
import torch

import recollect
from recollect.engine.mapped import MappedTables

table = polars.DataFrame({
    "subject": [f"s{i % 5}" for i in range(60)],
    "predicate": [f"p{i % 2}" for i in range(60)],
    "object": [f"o{i % 3}" for i in range(60)],
    "time": [2000 + i % 12 for i in range(60)],
})
graph = recollect.read(table)
memory = recollect.Memory.learn(graph)
memory.save("m")
memory = recollect.Memory.load("m")
memory.remember(subject="s1", predicate="p1", object="o9", time="2012")
assert "o9" in memory.recall(subject="s1", predicate="p1", time="2012")["object"].to_list()

tables = MappedTables(Path("tables"))
tensor = tables.zeros((8, 4), dtype=torch.float32)
with tables.in_order():
    tables.prefetch([tensor], torch.arange(8))
    tensor += 1
assert tensor.sum() == 32
"""


@pytest.mark.skipif(os.name != "posix", reason="takes away what only POSIX systems have")
def test_everything_works_without_what_only_posix_systems_have(tmp_path):
    subprocess.run(
        [sys.executable, "-c", SCRIPT + MEMORY, MODULES, OS, SIGNALS, MMAP], check=True, cwd=tmp_path, timeout=300
    )
