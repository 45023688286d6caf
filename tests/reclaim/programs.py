"""Programs that want one thread only, on a preloaded library, in processes with a big heap of which memory is given back.

    programs.py LIBRARY fork       Python >= 3.12 warns at each fork of a process with several threads
    programs.py LIBRARY unshare    os.unshare, and unshare -U
    programs.py LIBRARY bwrap      bubblewrap, with all namespaces

The last two are started by a fork, a vfork and an exec out of a big process. os.unshare needs a Python >= 3.12.
"""
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from cases import need, skip

HEAP = """
import os, sys, time
blocks = [bytearray(100_000) for _ in range(700)] + [bytes([i % 256]) * 1000 for i in range(64_000)]
blocks = blocks[::2]
def threads():
    with open("/proc/self/stat") as stat:
        return int(stat.read().rsplit(")", 1)[1].split()[17])
"""

FORK = (
    HEAP
    + """
for round in range(20):
    more = [bytearray(100_000) for _ in range(200)]
    del more
    if round % 4 == 0:
        time.sleep(0.2)
    if round == 0:
        print("before", threads())
    child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
print("done")
"""
)

START = (
    HEAP
    + """
import subprocess
for how in ("fork", "vfork"):
    subprocess.run(sys.argv[1:], check=True, preexec_fn=(lambda: None) if how == "fork" else None)
more = [bytearray(100_000) for _ in range(200)]
del more
time.sleep(0.2)
print("before", threads())
sys.stdout.flush()
if sys.argv[1] == "unshare" and hasattr(os, "unshare"):
    os.unshare(os.CLONE_NEWUSER)
else:
    os.execvp(sys.argv[1], sys.argv[1:])
"""
)


def run(library, *words):
    # The small blocks are malloc's, too.
    environment = dict(os.environ, LD_PRELOAD=library, PYTHONMALLOC="malloc")
    return subprocess.run(words, capture_output=True, text=True, env=environment, timeout=200)


def judge(result, wanted):
    """The process did what it was to, with a thread of ours to begin with, and said nothing about it."""
    fine = result.returncode == 0 and "before 2\n" in result.stdout and result.stdout.endswith(wanted)
    if not fine or result.stderr:
        sys.exit(f"status {result.returncode}, output {result.stdout[-500:]!r}, errors {result.stderr[-2000:]!r}")


def python_of_today():
    found = [shutil.which(f"python3.{minor}") for minor in range(12, 20)]
    found += sorted(glob.glob(str(pathlib.Path.home() / ".pyenv/versions/3.*/bin/python3")))
    for program in filter(None, found):
        version = subprocess.run([program, "--version"], capture_output=True, text=True)
        match = re.match(r"Python 3\.(\d+)", version.stdout)
        if match and int(match[1]) >= 12:
            return program
    return None


def main():
    library, kind = sys.argv[1:]
    if kind == "fork":  # not with -W error: some versions lose the error
        python = python_of_today()
        if python is None:
            skip("no Python 3.12 or later")
        judge(run(library, python, "-W", "always", "-c", FORK), "done\n")
        print(f"programs fork: ok, {python}")
        return
    words = {
        "unshare": ["unshare", "-U", "true"],
        "bwrap": ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "true"],
    }[kind]
    need(words[0])
    if subprocess.run(words, capture_output=True).returncode:
        skip(f"{' '.join(words)} fails without hakmem, too")
    judge(run(library, python_of_today() or sys.executable, "-c", START, *words), "before 2\n")
    print(f"programs {kind}: ok")


if __name__ == "__main__":
    main()
