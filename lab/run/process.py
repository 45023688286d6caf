"""One program, run once and measured.

It is started by `measure` (bench/measure.c), which is smaller than any program: a process inherits the peak RSS of
what it was before exec. Its environment is clean (environment()) or the user's own; the allocator's variables reach
the program only, not `measure`.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lab.run.allocators import Allocator
from lab.run.folder import Folder

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # SIGHUP: the terminal was closed
GROUP_END_S = 1.0
asked_to_end = []  # the signals of an interruption that is not over; what it raised may be lost in a destructor
PASSED_ON = ("PATH", "HOME", "TMPDIR")
# All environments of a comparison are padded to one length: it shifts the stack, and where the stack lies alone can
# change a program's speed. Clean ones are shorter than this.
ENVIRONMENT_BYTES = 4096
PADDING = "HAK_LAB_PADDING"


@dataclass(frozen=True)
class Measured:
    status: int  # exit status, or the negative number of the signal
    seconds: float = 0.0
    user_seconds: float = 0.0
    system_seconds: float = 0.0
    rss_peak_kb: int = 0  # of the largest process
    faults_minor: int = 0
    faults_major: int = 0
    system_calls: int | None = None  # None: not counted
    stdout: bytes = b""
    stderr: bytes = b""
    problem: str = ""  # what went wrong, in one sentence

    @property
    def cpu_seconds(self) -> float:
        return self.user_seconds + self.system_seconds

    def figures(self) -> dict:
        return {name: getattr(self, name) for name in (
            "seconds", "user_seconds", "system_seconds", "cpu_seconds", "rss_peak_kb", "faults_minor",
            "faults_major", "system_calls")}  # fmt: skip


@dataclass
class Links:
    """LD_PRELOAD is split at spaces and colons, and its length shifts the stack: every library is reached through
    a link, all of one length."""

    folder: Folder = field(default_factory=Folder)
    names: dict = field(default_factory=dict)

    def preloadable(self, library: str) -> str:
        if library not in self.names:
            self.names[library] = os.path.join(self.folder.name, f"{len(self.names):03}.so")
            os.symlink(library, self.names[library])
        return self.names[library]

    def in_front(self, library: str, environment: Mapping[str, str]) -> str:
        """LD_PRELOAD with the library before what a user's environment has; by its own name if that can be."""
        name = self.preloadable(library) if re.search(r"[\s:]", library) else library
        return ":".join(filter(None, [name, environment.get("LD_PRELOAD")]))


def clean_environment(settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """PATH, HOME and TMPDIR, the C locale, and the settings; nothing else of ours."""
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return passed | {"LC_ALL": "C"} | dict(settings or {})


def variables(allocator: Allocator, links: Links) -> dict[str, str]:
    """What makes a program run on this allocator."""
    preload = {"LD_PRELOAD": links.preloadable(allocator.library)} if allocator.library else {}
    return preload | dict(allocator.settings)


def bytes_of(environment: Mapping[str, str]) -> int:
    return sum(len(os.fsencode(name)) + len(os.fsencode(value)) + 2 for name, value in environment.items())


def result(done: "Measured") -> tuple[dict, str]:
    """The object that a benchmark printed, and "", or {} and a sentence why there is none."""
    if done.problem:
        return {}, done.problem
    try:
        return json.loads(done.stdout), ""
    except ValueError:
        return {}, "its output is not JSON"


def settle_malloc(result: dict, allocator: Allocator) -> str:
    """Where `result`, which a benchmark printed, has its malloc from: the allocator's library, or a sentence why not."""
    if not allocator.library:
        return ""
    if os.path.realpath(result["malloc"]) != os.path.realpath(allocator.library):
        return f"malloc came from {result['malloc']}, not from the preloaded library"
    result["malloc"] = os.path.realpath(allocator.library)  # not the link it was loaded by
    return ""


def padded(environment: Mapping[str, str], length: int = ENVIRONMENT_BYTES) -> dict[str, str]:
    """The same with PADDING, `length` bytes long; longer, and not padded, if it does not fit."""
    environment = {name: value for name, value in environment.items() if name != PADDING}
    missing = length - bytes_of(environment | {PADDING: ""})
    return environment | {PADDING: "x" * missing} if missing >= 0 else environment


def _is_main_thread() -> bool:
    """Handlers run in the main thread only."""
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def ending_kills():
    """Yields a function that takes the leader of a process group. Inside, a signal that would end this process kills these
    groups, and its handler runs at the end: one that raises while a child is started or waited for may lose the child, or
    leave a lock of subprocess taken."""
    heard, leaders = [], []

    def kill():
        for leader in leaders:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(leader.pid, signal.SIGKILL)

    def hear(number, _frame):
        heard.append(number)
        kill()

    def add(leader: subprocess.Popen):
        leaders.append(leader)
        if heard:
            kill()

    handlers = {number: signal.getsignal(number) for number in ENDING}
    handlers = {number: handler for number, handler in handlers.items() if callable(handler) and _is_main_thread()}
    for number in handlers:
        signal.signal(number, hear)
    try:
        yield add
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if heard:
            signal.raise_signal(heard[0])


def end_group(leader: subprocess.Popen) -> None:
    """Kills what is left of a process group, and waits for its end."""
    until = time.monotonic() + GROUP_END_S
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
        leader.wait()
        while time.monotonic() < until:  # the others are not our children
            os.killpg(leader.pid, 0)
            time.sleep(0.001)
    leader.wait()


def run(words: Sequence[str], environment: Mapping[str, str], added: Mapping[str, str], *, build_dir: str,
        cpu: int | None = None, timeout: float | None = None, stdin: bytes = b"", cwd: str | None = None,
        count_calls: bool = False, environment_bytes: int = ENVIRONMENT_BYTES) -> Measured:  # fmt: skip
    """Runs words[0] in a session of its own; nothing of it is left when this returns or raises. `added` are the
    variables of the allocator; the whole environment gets `environment_bytes` long, unless that is too few. stdout and
    stderr are kept, in files while it runs."""
    if asked_to_end and _is_main_thread():
        raise KeyboardInterrupt
    environment, added = dict(environment), dict(added)
    added |= {PADDING: padded(environment | added, environment_bytes).get(PADDING, "")}
    program = [os.path.join(build_dir, "bin", "measure")]
    program += ["--cpu", str(cpu)] if cpu is not None else []
    program += ["--calls"] if count_calls else []
    for name, value in added.items():
        program += ["--env", f"{name}={value}"]
    with contextlib.ExitStack() as stack:
        out, err, given = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        given.write(stdin)
        given.seek(0)
        reading, writing = os.pipe()
        report = stack.enter_context(open(reading, encoding="utf-8"))
        late = False
        with ending_kills() as add:
            try:
                process = subprocess.Popen([*program, str(writing), *words], env=environment, cwd=cwd, stdin=given,
                                           stdout=out, stderr=err, pass_fds=(writing,), start_new_session=True)  # fmt: skip
            except OSError as error:
                return Measured(status=127, problem=f"{program[0]}: {error.strerror}")
            finally:
                os.close(writing)
            add(process)
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                late = True
            end_group(process)
        out.seek(0)
        err.seek(0)
        said, complaints = out.read(), err.read()
        if late:
            return Measured(status=-signal.SIGKILL, stdout=said, stderr=complaints,
                            problem=f"no end after {timeout:g} s")  # fmt: skip
        line = report.readline()
    if not line:
        return Measured(status=127, stdout=said, stderr=complaints, problem=last_line(complaints) or "it did not start")
    figures = json.loads(line)
    status = os.waitstatus_to_exitcode(figures.pop("status"))
    problem = ""
    if status < 0:
        problem = f"died of {signal.Signals(-status).name}"
    elif status > 0:
        problem = f"status {status}"
    if problem and last_line(complaints):
        problem += f": {last_line(complaints)}"
    return Measured(status=status, stdout=said, stderr=complaints, problem=problem, **figures)


def last_line(text: bytes) -> str:
    return (text.decode(errors="replace").strip().splitlines() or [""])[-1]
