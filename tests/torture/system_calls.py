"""Kill a forked process before its n-th system call that changes files: of Python, of SQLite, of any library.

The parent traces the child (ptrace, Linux). Events are counted over all its threads, in the order in which they come.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
from pathlib import Path

TRACEME, SYSCALL, SETOPTIONS, GET_SYSCALL_INFO = 0, 24, 0x4200, 0x420E
TRACESYSGOOD, TRACECLONE, EXITKILL = 1, 8, 1 << 20
SYSCALL_STOP = signal.SIGTRAP | 0x80
WALL = 0x40000000  # of waitpid: threads too
ENTRY = 1  # of a system call, not its end

ON_FILE = ("write", "pwrite64", "writev", "pwritev", "ftruncate", "fsync", "fdatasync", "fallocate", "flock")
ON_PATH = ("rename", "renameat", "renameat2", "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir", "linkat", "symlinkat")
COPY = ("sendfile", "copy_file_range")
OPEN = ("open", "openat")
NAMES = (*ON_FILE, *ON_PATH, *COPY, *OPEN)
NUMBERS = {  # of the names; −1: this machine has none
    "x86_64": (
        *(1, 18, 20, 296, 77, 74, 75, 285, 73),
        *(82, 264, 316, 87, 263, 83, 258, 84, 265, 266),
        *(40, 326),
        *(2, 257),
    ),
    "aarch64": (
        *(64, 68, 66, 70, 46, 82, 83, 47, 32),
        *(-1, 38, 276, -1, 35, -1, 34, -1, 37, 36),
        *(71, 285),
        *(-1, 56),
    ),
}


class SyscallInfo(ctypes.Structure):
    """struct ptrace_syscall_info at the entry of a call."""

    _fields_ = (
        ("op", ctypes.c_uint8),
        ("pad", ctypes.c_uint8 * 3),
        ("arch", ctypes.c_uint32),
        ("instruction_pointer", ctypes.c_uint64),
        ("stack_pointer", ctypes.c_uint64),
        ("number", ctypes.c_uint64),
        ("args", ctypes.c_uint64 * 6),
        ("rest", ctypes.c_uint64 * 2),
    )


def why_not() -> str | None:
    """Return why processes cannot be traced on this machine, None if they can."""
    if platform.system() != "Linux" or platform.machine() not in NUMBERS:
        return f"system calls are traced on Linux, x86-64 or arm64; this is {platform.system()} {platform.machine()}"
    child = os.fork()
    if child == 0:
        be_traced()
        os._exit(0)
    is_traced = os.WIFSTOPPED(os.waitpid(child, WALL)[1])
    if is_traced:
        _ptrace(SETOPTIONS, child, TRACESYSGOOD | EXITKILL)
        _resume(child)
        os.waitpid(child, WALL)
        is_traced = next_call(child) is not None
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, WALL)
    return None if is_traced else "this machine does not let a process trace its children"


def be_traced() -> None:
    """Stop this process until its parent traces it."""
    if _libc().ptrace(TRACEME, 0, None, None):
        os._exit(3)
    os.kill(os.getpid(), signal.SIGSTOP)


def run_traced(child: int, moment: int) -> int:
    """Let a child that called `be_traced` go on; kill it before event `moment`, counted from 1. Return its status."""
    is_event, events = EventFilter(child), 0
    os.waitpid(child, WALL)
    _ptrace(SETOPTIONS, child, TRACESYSGOOD | TRACECLONE | EXITKILL)
    _resume(child)
    while True:
        process, status = os.waitpid(-1, WALL)
        if not os.WIFSTOPPED(status):
            if process == child:
                return status
            continue
        stop, received = os.WSTOPSIG(status), 0
        if stop == SYSCALL_STOP:
            events += is_event(process)
            if events == moment:
                os.kill(child, signal.SIGKILL)
                moment = 0
        elif stop not in (signal.SIGTRAP, signal.SIGSTOP):  # those are of new threads
            received = stop
        _resume(process, received)


class EventFilter:
    """Tells calls that change files from all others."""

    def __init__(self, child: int) -> None:
        self.child = child
        self.name_of = dict(zip(NUMBERS[platform.machine()], NAMES, strict=True))

    def __call__(self, thread: int) -> bool:
        info = next_call(thread)
        name = self.name_of.get(info.number) if info is not None else None
        if info is None or name is None:
            return False
        if name in OPEN:
            return bool(info.args[OPEN.index(name) + 1] & (os.O_CREAT | os.O_TRUNC))
        return name not in ON_FILE or self._is_file(info.args[0])

    def _is_file(self, descriptor: int) -> bool:
        """Return whether a descriptor is that of a file, and not of a pipe, a socket or a terminal."""
        try:
            path = str(Path(f"/proc/{self.child}/fd/{descriptor}").readlink())
        except OSError:
            return False
        return path.startswith("/") and not path.startswith(("/dev/pts", "/dev/null", "/proc"))


def next_call(thread: int) -> SyscallInfo | None:
    """Return the system call that a stopped thread begins; None if it ends one."""
    info = SyscallInfo()
    size = _libc().ptrace(GET_SYSCALL_INFO, thread, ctypes.c_void_p(ctypes.sizeof(info)), ctypes.byref(info))
    return info if size > 0 and info.op == ENTRY else None


def _resume(thread: int, received: int = 0) -> None:
    """Let a thread go on to its next system call; one that was killed meanwhile is not there any more."""
    _libc().ptrace(SYSCALL, thread, None, ctypes.c_void_p(received))


def _ptrace(request: int, thread: int, data: int) -> None:
    if _libc().ptrace(request, thread, None, ctypes.c_void_p(data)) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def _libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.ptrace.restype = ctypes.c_long
    library.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    return library
