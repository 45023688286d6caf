"""What a row has to say about where it was measured."""

import json
import os
import platform
import subprocess

from lab.allocators import ROOT


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
        return subprocess.run(["git", "-C", str(ROOT), *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True, check=False).stdout.strip()
    try:
        head = git("rev-parse", "HEAD") or "unknown"
        return head + ("+changes" if git("status", "--porcelain", "--untracked-files=no") else "")
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


def load():
    return os.getloadavg()[0]


def describe(build_dir):
    thp = _read("/sys/kernel/mm/transparent_hugepage/enabled")
    return {
        "commit": _commit(),
        "flags": _flags(build_dir),
        "cpu": _field("/proc/cpuinfo", "model name") or platform.machine(),
        "architecture": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory": _field("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "thp": thp[thp.find("[") + 1 : thp.find("]")] if "[" in thp else "unknown",
        "overcommit": _read("/proc/sys/vm/overcommit_memory").strip(),
    }


def line(context):
    return (f"{context['cpu']}, {context['cpus']} CPUs, {context['memory']}, Linux {context['kernel']}, "
            f"{context['libc']}, huge pages {context['thp']}, commit {context['commit'][:12]}"
            f"{'+changes' if context['commit'].endswith('+changes') else ''}")
