"""The processes that descend from this one: who they are, what they use, whether they listen, and their end.

adopt() makes this process the one that orphans come back to, so that no daemon of a measured program gets out of sight.
"""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass

PR_SET_CHILD_SUBREAPER = 36
END_SECONDS = 10  # between SIGKILL and giving up
LISTENING = "0A"  # of /proc/net/tcp
ACCEPTING = 0x10000  # of /proc/net/unix, __SO_ACCEPTCON
TICKS = os.sysconf("SC_CLK_TCK")
STAT_BYTES_MAX = 4096  # 52 numbers and a name


@dataclass(frozen=True)
class Used:
    """Of several processes: CPU seconds and page faults are sums, sizes those of the largest."""

    cpu_seconds: float = 0.0
    faults: int = 0
    rss_kb: int = 0
    rss_peak_kb: int = 0


def adopt() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _read(pid: int | str, name: str) -> str:
    with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:
        return file.read()


def _stat(pid: int) -> list[bytes]:
    """The fields after the name; the name may hold spaces and brackets. [0] is the state, [1] the parent. All processes of
    the machine are read at each look, so no file object is made."""
    file = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    try:
        return os.read(file, STAT_BYTES_MAX).rpartition(b")")[2].split()
    finally:
        os.close(file)


def parents() -> dict[int, int]:
    """Every process that is no zombie, and its parent."""
    found = {}
    for word in os.listdir("/proc"):
        if word.isdigit():
            with contextlib.suppress(OSError, IndexError):
                fields = _stat(int(word))
                if fields[0] not in b"ZX":
                    found[int(word)] = int(fields[1])
    return found


def descendants(root: int | None = None, but: Collection[int] = ()) -> list[int]:
    """Processes below root (this one), parents before children; those in `but` and all below them are left out."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found, open_ends = [], [root or os.getpid()]
    while open_ends:
        below = [pid for pid in children.get(open_ends.pop(0), []) if pid not in but]
        found += below
        open_ends += below
    return found


def end(but: set[int]) -> None:
    """Kills all descendants that are not in `but`, and waits until they are no more. Those that are after END_SECONDS
    (the kernel waits for a device, say) are added to `but`: nobody waits for them again."""
    until = time.monotonic() + END_SECONDS
    out_of_reach: set[int] = set()  # another user's: a set-uid program
    while left := set(descendants(but=but)) - out_of_reach:
        if time.monotonic() > until:
            but |= left
            return
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            except PermissionError:
                out_of_reach.add(pid)
        time.sleep(0.002)


def reap(but: Collection[int]) -> None:
    """Clears away children that have ended, adopted ones among them; only when nobody waits for one."""
    for word in os.listdir("/proc"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = _stat(int(word))
            if fields[0] == b"Z" and int(fields[1]) == os.getpid() and int(word) not in but:
                os.waitpid(int(word), os.WNOHANG)


def _status_kb(pid: int, key: str) -> int:
    for line in _read(pid, "status").splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    return 0


def used(pids: Iterable[int]) -> Used:
    """Their own, and that of children they have waited for."""
    cpu, faults, rss, peak = 0.0, 0, 0, 0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError):
            fields = _stat(pid)
            # The clock of another process: clock_getcpuclockid(3). It counts nanoseconds, /proc only ticks.
            cpu += time.clock_gettime((~pid << 3) | 2) + (int(fields[13]) + int(fields[14])) / TICKS
            faults += sum(int(fields[at]) for at in (7, 8, 9, 10))
            rss = max(rss, _status_kb(pid, "VmRSS"))
            peak = max(peak, _status_kb(pid, "VmHWM"))
    return Used(cpu, faults, rss, peak)


def _listening_inodes(pid: int) -> set[str]:
    found = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            found |= {fields[9] for line in _read(pid, f"net/{table}").splitlines()[1:]
                      if (fields := line.split())[3] == LISTENING}  # fmt: skip
    with contextlib.suppress(OSError):
        found |= {fields[6] for line in _read(pid, "net/unix").splitlines()[1:]
                  if int((fields := line.split())[3], 16) & ACCEPTING}  # fmt: skip
    return found


def listens(pids: Iterable[int]) -> bool:
    """Does one of them hold a socket that takes connections?"""
    for pid in pids:
        with contextlib.suppress(OSError):
            sockets = set()
            for fd in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    target = os.readlink(f"/proc/{pid}/fd/{fd}")
                    if target.startswith("socket:["):
                        sockets.add(target[8:-1])
            if sockets and sockets & _listening_inodes(pid):
                return True
    return False
