"""Runs a program of the user's with the recorder preloaded. The program keeps its input, output and place in the
foreground; only its environment has more in it."""

import os
import pathlib
import re
import secrets
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from lab.run import process, program
from lab.run.allocators import ROOT

MARK = b"hak\x1a"  # how a trace begins
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # exit status, as of shells
PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
LEFT_TO_PROGRAM = (signal.SIGINT, signal.SIGQUIT)  # the terminal sends them to both


@dataclass(frozen=True)
class Recording:
    words: Sequence[str]
    out: pathlib.Path
    limit_bytes: int
    is_with_children: bool
    library: pathlib.Path  # libhakrecord.so

    def children(self) -> list[pathlib.Path]:
        """The traces of other processes than the first."""
        pattern = re.compile(re.escape(self.out.name) + r"\.[0-9]+")
        return sorted(path for path in self.out.parent.iterdir() if pattern.fullmatch(path.name))


def default_out(words: Sequence[str]) -> pathlib.Path:
    return pathlib.Path(os.path.basename(words[0]) + ".trace")


def prepare(recording: Recording) -> None:
    """Makes the file, empty. ValueError if that would cost the user something."""
    if not recording.library.is_file():
        raise ValueError(f"no {recording.library}; run: hak build")
    if recording.out.exists():
        if not recording.out.is_file():
            raise ValueError(f"{recording.out} is not a file")
        with recording.out.open("rb") as file:
            head = file.read(len(MARK))
        if head not in (b"", MARK):
            raise ValueError(f"{recording.out} is there and is no trace; it is not overwritten")
    recording.out.write_bytes(b"")
    for path in recording.children():  # of an earlier recording
        if path.read_bytes()[: len(MARK)] == MARK:
            path.unlink()


def _environment(recording: Recording, links: process.Links) -> dict[str, str]:
    found = {name: value for name, value in os.environ.items() if name != "HAK_LIB"}
    # `hak` puts its own folder in front.
    paths = [path for path in found.pop("PYTHONPATH", "").split(":") if path and path != str(ROOT)]
    if paths:
        found["PYTHONPATH"] = ":".join(paths)
    library = str(recording.library)
    if re.search(r"[\s:]", library):
        library = links.preloadable(library)
    found["LD_PRELOAD"] = ":".join(filter(None, [library, found.get("LD_PRELOAD")]))
    found |= {
        "HAK_RECORD_FILE": str(recording.out.absolute()),
        "HAK_RECORD_RUN": str(secrets.randbits(63)),
        "HAK_RECORD_LIMIT": str(recording.limit_bytes),
    }
    if recording.is_with_children:
        found["HAK_RECORD_CHILDREN"] = "1"
    return found


def run(recording: Recording) -> int:
    """The program's wait status. Raises program.Refused."""
    file = program.find(recording.words[0], os.environ.get("PATH"))
    links = process.Links()
    environment = _environment(recording, links)
    child = os.fork()
    if child == 0:
        try:
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and an exec keeps that
                signal.signal(number, signal.SIG_DFL)
            environment["HAK_RECORD_PID"] = str(os.getpid())
            os.execve(file, list(recording.words), environment)
        except OSError as error:
            os.write(2, f"hak: {recording.words[0]}: {error.strerror}\n".encode())
        finally:
            os._exit(NOT_EXECUTABLE)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in LEFT_TO_PROGRAM}
    before |= {number: signal.signal(number, lambda got, _frame: os.kill(child, got)) for number in PASSED_ON}
    try:
        return os.waitpid(child, 0)[1]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_as(status: int) -> int:
    """The exit status to end with; does not return if the program died of a signal."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code
