"""A server for the time of one load: started, waited for until it serves, loaded, read, stopped.

The load's duration is the time; CPU time and page faults are those of the server between the first and the last moment
of the load, sizes those of its largest process at the end. Nothing of it is left afterwards.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from lab.run import process, tree

STOP_SECONDS = 10  # between SIGTERM and SIGKILL
LOOK_SECONDS = 0.01  # between two looks whether it serves
REPORT_SECONDS = 1  # for `measure` to say what it measured


@dataclass(frozen=True)
class Loaded:
    """What one load gave; `problem` is what went wrong, in one sentence."""

    result: dict
    stdout: bytes = b""
    problem: str = ""
    said: bytes = b""  # by the program that failed


class Server:
    def __init__(self, run: Callable[[], process.Measured], starter: str, others: set[int]):
        """run: a call of process.run. starter: the file of `measure`, which starts it and is none of it. others:
        processes that were there before; those that cannot be ended are added."""
        self.starter, self.others = os.path.realpath(starter), others
        self.measured = process.Measured(status=127, problem="it did not end")
        self.stopping = False
        self.thread = threading.Thread(target=self._serve, args=(run,), daemon=True)

    def _serve(self, run: Callable[[], process.Measured]) -> None:
        try:
            self.measured = run()
        except (OSError, ValueError) as error:
            self.measured = process.Measured(status=127, problem=str(error))
        if not self.stopping:
            # A server that ends by itself has no load to wait for.
            tree.end(self.others)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping = True
        until = time.monotonic() + tree.END_SECONDS
        while self.thread.is_alive() and time.monotonic() < until:
            tree.end(self.others)
            self.thread.join(LOOK_SECONDS)
        tree.end(self.others)
        tree.reap(self.others)

    def processes(self) -> list[int]:
        return [pid for pid in tree.descendants(but=self.others) if not self._is_starter(pid)]

    def _is_starter(self, pid: int) -> bool:
        try:
            return os.readlink(f"/proc/{pid}/exe") == self.starter
        except OSError:
            return False

    def wait(self, ready: Callable[[], bool] | None, timeout: float) -> str:
        """Until it serves: "" or what is wrong."""
        until = time.monotonic() + timeout
        while self.thread.is_alive() and time.monotonic() < until:
            if ready() if ready else tree.listens(self.processes()):
                return ""
            time.sleep(LOOK_SECONDS)
        if not self.thread.is_alive():
            return self.ended("before it served", "does it go to the background? It must stay in the foreground")
        if ready:
            return f"--ready did not succeed in {timeout:g} s"
        return f"no process of it listens after {timeout:g} s; say with --ready CMD when it serves"

    def ended(self, when: str, why: str = "the load must leave it running") -> str:
        self.thread.join(tree.END_SECONDS + REPORT_SECONDS)
        return f"the server ended {when}: {self.measured.problem or f'status 0; {why}'}"

    def stop(self) -> None:
        """SIGTERM to the process that was started, then to what it leaves; SIGKILL after STOP_SECONDS."""
        self.stopping = True
        until = time.monotonic() + STOP_SECONDS
        asked: set[int] = set()
        while time.monotonic() < until and (left := self.processes()):
            first = [pid for pid, parent in tree.parents().items() if pid in left and self._is_starter(parent)]
            # Once the first is gone, the rest are orphans that nobody else will end.
            for pid in set(first or left) - asked:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGTERM)
                asked.add(pid)
            time.sleep(LOOK_SECONDS / 2)
        if not self.processes():
            self.thread.join(REPORT_SECONDS)
        self.__exit__()


def load(server: Server, until: Callable[[], process.Measured], ready: Callable[[], bool] | None,
         timeout: float) -> Loaded:  # fmt: skip
    """One load on a server that was entered; stops it. `until` runs the load command."""
    problem = server.wait(ready, timeout)
    if problem:
        server.__exit__()
        return Loaded({}, problem=problem, said=server.measured.stderr)
    before = tree.used(server.processes())
    done = until()
    after = tree.used(server.processes())
    if not after.rss_kb:
        return Loaded({}, problem=server.ended("during the load"), said=server.measured.stderr)
    server.stop()
    if done.problem:
        return Loaded({}, problem=f"the load failed: {done.problem}", said=done.stderr)
    result = {
        "seconds": done.seconds,
        "cpu_seconds": max(after.cpu_seconds - before.cpu_seconds, 1e-9),
        "rss_peak_kb": after.rss_peak_kb,
        "rss_end_kb": after.rss_kb,
        "faults": after.faults - before.faults,
    }
    if server.measured.system_calls is not None:
        result["system_calls"] = server.measured.system_calls
    return Loaded(result, stdout=done.stdout)
