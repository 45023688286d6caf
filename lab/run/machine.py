"""What a row has to say about where it was measured."""

import json
import os
import platform
import subprocess
from collections.abc import Iterable

from lab.run import huge_pages
from lab.run.allocators import ROOT
from lab.store.rows import Context, Machine, session_name


def _read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _field(path, key):
    for line in _read(path).splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""


def _commit():
    def git(*words):
        return subprocess.run(
            ["git", "-C", str(ROOT), *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False
        ).stdout.strip()

    try:
        head = git("rev-parse", "HEAD") or "unknown"
        return head + (
            "+changes" if git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!lab/results") else ""
        )
    except OSError:
        return "unknown"


def _flags(build_dir):
    """Compiler and flags of one file of the bench and one of the library, as the build recorded them."""
    try:
        with open(os.path.join(build_dir, "compile_commands.json"), encoding="utf-8") as file:
            commands = json.load(file)
    except (OSError, ValueError):
        return {}
    flags = {}
    for part, ending in (("bench", "bench/random_mixed.c"), ("library", "src/api/malloc.c")):
        for entry in commands:
            if entry["file"].endswith(ending) and part not in flags:
                words = entry["command"].split()
                keep = [word for word in words if word[:2] in ("-O", "-f", "-m", "-g", "-D") or word.startswith("-std")]
                flags[part] = " ".join([os.path.basename(words[0]), *keep])
    return flags


def memory_kb(key: str) -> int:
    """A field of /proc/meminfo; 0 if the system does not tell."""
    return int((_field("/proc/meminfo", key).split() or ["0"])[0])


def load():
    return os.getloadavg()[0]


def machine() -> Machine:
    return Machine(
        cpu=_field("/proc/cpuinfo", "model name") or platform.machine(),
        architecture=platform.machine(),
        cpus=len(os.sched_getaffinity(0)),
        memory_kb=memory_kb("MemTotal"),
        kernel=platform.release(),
        libc=" ".join(platform.libc_ver()),
        thp=huge_pages.read() or "unknown",
        overcommit=_read("/proc/sys/vm/overcommit_memory").strip(),
    )


def context(build_dir: str | os.PathLike, libraries: Iterable[str] = ()) -> Context:
    """What all rows of this invocation say of where they were measured. libraries: those of hakmem; how one from
    elsewhere was compiled is not known."""
    flags = _flags(build_dir)
    inside = os.path.join(os.path.realpath(build_dir), "")
    if not all(os.path.realpath(library).startswith(inside) for library in libraries):
        flags.pop("library", None)
    return Context(session=session_name(), commit=_commit(), flags=flags, machine=machine())


def line(context: Context) -> str:
    where = context.machine
    commit = context.commit[:12] + ("+changes" if context.commit.endswith("+changes") else "")
    return (
        f"{where.cpu}, {where.cpus} CPUs, {where.memory_kb / 1024**2:.1f} GiB, Linux {where.kernel}, {where.libc}, "
        f"huge pages {where.thp}, commit {commit}"
    )


def cpu(word: str | None) -> int | None:
    """The CPU that --pin names: a number, none, or the last one there is. ValueError if it may not be used."""
    allowed = os.sched_getaffinity(0)
    if word == "none":
        return None
    if word is None:
        return max(allowed)
    if not word.isdigit() or int(word) not in allowed:
        raise ValueError(f"--pin: '{word}' is none of the CPUs {', '.join(map(str, sorted(allowed)))}, nor none")
    return int(word)
