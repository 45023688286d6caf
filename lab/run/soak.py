"""One benchmark program for minutes, in one process: its epochs as they come, and how it ended.

The program writes an epoch a line to a pipe (bench/soak.h). It lives in a process group of its own, so that Ctrl-C
comes here first: it is then asked to stop, finishes its round and reports. If this process is killed, the program dies
of the closed pipe.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lab.run import process
from lab.run.allocators import Allocator

EPOCHS_SILENT = 20  # so many lengths of an epoch without a line, and a minute at least: the program hangs
SILENT_S_MIN = 60.0


@dataclass(frozen=True)
class Work:
    command: str  # a round is short against an epoch of a second, so that epochs are of nearly equal length
    threads: bool = False


WORKS = {
    "mixed": Work("random_mixed 1000000 400 SEED"),
    "larson": Work("larson 2 256 20 SEED", threads=True),
    "churn": Work("churn 2000000 40 103 200000 SEED"),
    "handoff": Work("handoff 1 1 1000 SEED", threads=True),
    "shift": Work("shift 100 1000000 SEED"),
    "large_mix": Work("large_mix 100 64 16384 200 SEED"),
    "cold_churn": Work("cold_churn 256 100 64 4096 1000 SEED"),
}


@dataclass
class Ended:
    how: str = "complete"  # complete, stopped or failed
    problem: str = ""  # in one sentence, if it failed
    epochs: int = 0
    report: dict = field(default_factory=dict)  # what the program printed at its end
    complaints: list[str] = field(default_factory=list)  # what it said on stderr


@dataclass
class Soak:
    command: str
    allocator: Allocator
    build_dir: str
    seconds: float
    epoch_s: float
    seed: int
    cpu: int | None
    settings: Mapping[str, str]
    on_line: Callable[[bytes], None]  # every line of the CSV, the names first
    silent_s: float | None = None
    _asked: int = 0
    _hung_up: bool = False

    def words(self) -> list[str]:
        program, *arguments = self.command.replace("SEED", str(self.seed)).split()
        return [os.path.join(self.build_dir, "bin", program), *arguments]

    def run(self) -> Ended:
        """To be called in the main thread: SIGINT, SIGTERM and SIGHUP, unless that is ignored, stop the soak and are handled
        as before afterwards. A second one kills the program."""
        ended = Ended()
        with contextlib.ExitStack() as stack:
            links = process.Links()
            out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            reading, writing = os.pipe()
            stack.callback(os.close, reading)
            environment = process.padded(
                process.clean_environment(self.settings) | process.variables(self.allocator, links))  # fmt: skip
            words = [*self.words(), "--json", "--soak", f"{self.seconds:.3f}", "--epoch-ms",
                     str(max(1, round(self.epoch_s * 1000))), "--epoch-fd", str(writing)]  # fmt: skip
            try:
                with _pinned(self.cpu):
                    child = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                             pass_fds=(writing,), process_group=0)  # fmt: skip
            finally:
                os.close(writing)
            stack.callback(_end, child)
            for number in process.ENDING:
                if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                    continue  # nohup
                stack.callback(self._restore, number, signal.signal(number, lambda n, _: self._stop(child, n)))
            self._follow(child, reading, ended)
            self._conclude(child, out, err, ended)
        return ended

    def _stop(self, child, number: int) -> None:
        if number == signal.SIGHUP:
            if self._hung_up:  # the kernel and the shell both say it
                return
            self._hung_up = True
        self._asked += 1
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(signal.SIGTERM if self._asked == 1 else signal.SIGKILL)

    def _restore(self, number: int, handler) -> None:
        if number == signal.SIGHUP and self._hung_up:
            handler = signal.SIG_IGN  # it may be said once more, while results are stored
        signal.signal(number, handler)

    def _follow(self, child, reading: int, ended: Ended) -> None:
        """Hands the lines on until the program closes its end."""
        rest, silent = b"", self.silent_s or max(SILENT_S_MIN, EPOCHS_SILENT * self.epoch_s)
        lines, heard = 0, time.monotonic()
        while True:
            ready, _, _ = select.select([reading], [], [], 0.5)
            if not ready:
                if time.monotonic() - heard > silent:
                    ended.problem = f"no epoch for {silent:.0f} s: the program hangs and was killed"
                    child.kill()
                    return
                continue
            heard = time.monotonic()
            data = os.read(reading, 65536)
            if not data:
                return
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                lines += 1
                self.on_line(line + b"\n")
                ended.epochs = lines - 1
                if lines == 2:
                    ended.problem = self._not_loaded(child.pid)
            if ended.problem:
                child.kill()
                return

    def _not_loaded(self, pid: int) -> str:
        library = self.allocator.library
        if not library:
            return ""
        with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:
            text = maps.read()
            if text and os.path.realpath(library) not in text:
                return f"{os.path.basename(library)} is not loaded: the preload did not take place"
        return ""

    def _conclude(self, child, out, err, ended: Ended) -> None:
        try:
            status = child.wait(SILENT_S_MIN)
        except subprocess.TimeoutExpired:
            child.kill()
            status = child.wait()
            ended.problem = ended.problem or f"no end {SILENT_S_MIN:.0f} s after the last epoch"
        out.seek(0)
        err.seek(0)
        ended.complaints = err.read().decode(errors="replace").strip().splitlines()
        with contextlib.suppress(ValueError):
            ended.report = json.loads(out.read() or b"{}")
        if self._asked:
            ended.how = "stopped"
            status = 0 if self._asked > 1 else status
        if status and not ended.problem:
            said = f": {ended.complaints[-1]}" if ended.complaints else ""
            ended.problem = (f"died of {signal.Signals(-status).name}" if status < 0 else f"status {status}") + said
        library, served = self.allocator.library, os.path.realpath(ended.report.get("malloc", ""))
        if ended.report and not ended.problem and library and served != os.path.realpath(library):
            ended.problem = f"malloc came from {served}, not from the preloaded library"
        if "malloc" in ended.report:
            ended.report["malloc"] = os.path.basename(served)
        ended.how = "failed" if ended.problem else ended.how


@contextlib.contextmanager
def _pinned(cpu: int | None):
    """A process starts on the CPUs that its starter has at that moment."""
    before = os.sched_getaffinity(0)
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _end(child) -> None:
    if child.poll() is None:
        child.kill()
        child.wait()
