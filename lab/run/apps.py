"""Real programs: the work of tests/apps and bench/apps, run for its peak RSS and time instead of its results.

The figure is the peak of the largest process among a program and its children, read by `measure`, which is smaller
than any of them: a process inherits the peak of what started it. Programs may come with an allocator of their own
(Debian's redis is linked with jemalloc), so libc is preloaded too where libc is to be measured.
"""

import hashlib
import importlib
import pathlib
import shutil
import subprocess
import sys
from dataclasses import dataclass, field

from lab.run import process, program
from lab.run.allocators import ROOT, Allocator
from lab.run.folder import Folder

LIBC = "libc.so.6"

GHOSTSCRIPT = ("gs", "-q", "-dNOPAUSE", "-dBATCH", "-dSAFER", "-sDEVICE=pnggray", "-r200", "-sOutputFile=/dev/null")

REDIS = """
redis-server --port 0 --unixsocket "$PWD/s" --dir "$PWD" --save "" --appendonly no --daemonize no >log &
until redis-cli -s s PING >/dev/null 2>&1; do kill -0 $! || exit 1; sleep 0.02; done
redis-cli -s s <work >answers
redis-cli -s s INFO keyspace
redis-cli -s s SHUTDOWN NOSAVE
wait $!
"""

MEMCACHED = """
memcached -u "$(id -un)" -s "$PWD/s" -m 256 -t 2 >log 2>&1 &
env -u LD_PRELOAD python3 CLIENT "$PWD/s" ROUNDS && kill $! && wait $!
"""

JAVA = ("java", "-Xms48m", "-Xmx48m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", ".", "Native")
PYTHON = {"PYTHONMALLOC": "malloc"}


@dataclass(frozen=True)
class App:
    needs: tuple  # programs
    words: object  # called with the module and the word behind its name, a seed or an amount: the command
    module: str = ""  # in tests/apps
    files: object = None  # called with the module: names and contents of files in its folder
    stdin: object = None
    environment: dict = field(default_factory=dict)
    same_output: bool = True  # its output does not depend on time
    is_phases: bool = False  # sizes are drawn with the seed, and sets change from phase to phase
    amounts: tuple = ()  # of work, where it can be chosen: of a row, and in tests
    prepare: tuple = ()  # a command that makes further files, before anything is measured, on libc


def _work(name: str) -> str:
    return str(ROOT / "bench" / "apps" / name)


def _compiled(compiler: str, *options: str) -> App:
    words = [compiler, "-std=c++17", "-O1", *options, "-S", "-o", "-", "t.cc"]
    return App((compiler,), lambda *_: words, "compile", files=lambda m: {"t.cc": m.SOURCE})


def _python(file: str, *words: object) -> App:
    """A script that draws sizes by the seed."""
    return App(("python3",), lambda _, seed: ["python3", _work(file), *map(str, words), seed], environment=PYTHON,
               is_phases=True)  # fmt: skip


APPS = {
    "perl": App(("perl",), lambda m, _: ["perl", "-e", m.SCRIPT], "perl", environment={"PERL_HASH_SEED": "0"}),
    "sqlite": App(("sqlite3",), lambda *_: ["sqlite3", ":memory:"], "sqlite", stdin=lambda m: m.SCRIPT),
    "sqlite-phases": App(("sqlite3",), lambda *_: ["sqlite3", ":memory:"],
                         stdin=lambda _: pathlib.Path(_work("phases.sql")).read_text(encoding="utf-8")),
    "g++": _compiled("g++", "-frandom-seed=1"),
    "clang": _compiled("clang++"),
    "git": App(("git",), lambda m, _: ["/bin/sh", "-c", m.SCRIPT], "git"),
    "git-pack": App(("git", "awk"), lambda *_: ["/bin/sh", _work("pack.sh"), "1"]),
    "git-pack-2": App(("git", "awk"), lambda *_: ["/bin/sh", _work("pack.sh"), "2"]),
    "node": App(("node",), lambda *_: ["node", "main.js"], "node", files=lambda m: {"main.js": m.SCRIPT}),
    "python": App(("python3",), lambda *_: ["python3", "-m", "test", "test_json", "test_pickle"], "python_tests",
                  environment=PYTHON, same_output=False),
    "redis": App(("redis-server", "redis-cli"), lambda *_: ["/bin/sh", "-c", REDIS], "redis",
                 files=lambda m: {"work": m.commands().decode()}),
    "lua": App(("lua5.4",), lambda *_: ["lua5.4", _work("objects.lua")]),
    "gs": App(("gs",), lambda *_: [*GHOSTSCRIPT, _work("page.ps")]),
    "z3": App(("z3", "python3"),
              lambda *_: ["/bin/sh", "-c", f"env -u LD_PRELOAD python3 {_work('solve.py')} | z3 -in"]),
    "memcached": App(
        ("memcached", "python3"),
        lambda _, rounds: ["/bin/sh", "-c", MEMCACHED.replace("CLIENT", _work("cache.py")).replace("ROUNDS", rounds)],
        amounts=(20, 1)),
    "java": App(("java", "javac"), lambda _, rounds: [*JAVA, rounds], amounts=(400, 10),
                prepare=("javac", "-nowarn", "-d", ".", _work("Native.java"))),
    "lists-600-4000": _python("lists.py", 600, 4000, 40000, 12),
    "lists-600-60000": _python("lists.py", 600, 60000, 3000, 25),
    "lists-20000-400000": _python("lists.py", 20000, 400000, 500, 20),
    "objects": _python("objects.py", 6, 45000),
}  # fmt: skip


def _module(name):
    if not name:
        return None
    folder = str(ROOT / "tests" / "apps")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)


def source(name: str) -> str:
    """The one file that an app works on."""
    return next(iter(APPS[name].files(_module(APPS[name].module)).values()))


def missing(name):
    """What has to be installed first, or nothing."""
    for needed in APPS[name].needs:
        if shutil.which(needed) is None:
            return f"{needed} is not installed"
    if (
        name == "python"
        and subprocess.run(["python3", "-c", "import test.test_json"], capture_output=True, check=False).returncode
    ):
        return "python3 has no test modules (Debian package libpython3-testsuite)"
    return ""


def run(
    name: str, word: str, allocator: Allocator, links: process.Links, environment: dict, *, count_calls: bool, **how
):
    """An app in a folder of its own: (result, "") or (None, what went wrong). `how` is what process.run takes. Instead of
    counting system calls, the loader tells whose malloc each process got, which must be the allocator's for one."""
    app = APPS[name]
    module = _module(app.module)
    # Programs may bring a malloc of their own: libc is preloaded, too, where it is to be measured.
    added = {"LD_PRELOAD": LIBC} | process.variables(allocator, links)
    with Folder() as folder, Folder() as told:
        for file, text in (app.files(module) if app.files else {}).items():
            pathlib.Path(folder, file).write_text(text, encoding="utf-8")
        environment = environment | app.environment | getattr(module, "EXTRA", {}) | {"HOME": folder}
        if app.prepare and (problem := _prepare(app, folder)):
            return None, problem
        done = process.run(
            app.words(module, word), environment | (program.bindings(told) if count_calls else {}), added,
            stdin=app.stdin(module).encode() if app.stdin else b"", cwd=folder, **how)  # fmt: skip
        served = program.served(told)
    if done.problem:
        return None, done.problem
    library = allocator.library or program.libc()
    if count_calls and served.sources and not served.by(library):
        return None, f"malloc came from {served.not_by(library)}, not from the preloaded library"
    return done.figures() | {
        "operations": 1,
        "ops_per_s": 1 / done.seconds,
        "malloc": allocator.library or LIBC,
        "hash": hashlib.sha256(done.stdout).hexdigest()[:16] if app.same_output else name,
    }, ""


def _prepare(app: App, folder: str) -> str:
    """What went wrong, or nothing."""
    done = subprocess.run(app.prepare, cwd=folder, env=process.clean_environment(), capture_output=True, check=False)
    return f"{app.prepare[0]}: {process.last_line(done.stderr)}" if done.returncode else ""
