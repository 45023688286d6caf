"""Programs on a machine with two NUMA nodes: processor 0 is one, the others are the other.

    nodes.py [--blank] PROGRAM...

The kernel's folder of nodes is covered by a made-up one, in a mount namespace. Each program must end well, and strace must see one of them read the second node's list. With --blank no node has processors: nothing is read then.
"""
import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cases

FOLDER = "/sys/devices/system/node"
COVER = f'mount --bind "$1" {FOLDER} && shift && exec "$@"'


def covered(tree, *command):
    return [*UNSHARE, "sh", "-c", COVER, "sh", str(tree), *command]


def make_tree(tree, is_blank):
    last = (os.cpu_count() or 1) - 1
    (tree / "has_cpu").write_text("\n" if is_blank else "0-1\n")
    for node, cpus in enumerate(("0", f"1-{last}")):
        (tree / f"node{node}").mkdir()
        (tree / f"node{node}" / "cpulist").write_text(f"{cpus}\n")


def programs_end_well(folder):
    tree, log = folder / "tree", folder / "log"
    tree.mkdir()
    make_tree(tree, sys.argv[1] == "--blank")
    if subprocess.run(covered(tree, "true"), capture_output=True).returncode != 0:
        cases.skip("no mount namespace may be made, or the kernel has no folder of nodes")
    for program in PROGRAMS:
        subprocess.run(covered(tree, program), timeout=500, check=True)
    if shutil.which("strace"):
        subprocess.run(["strace", "-f", "-e", "trace=openat", "-o", log, *covered(tree, PROGRAMS[0])], timeout=500)
        assert f"{FOLDER}/node1/cpulist" in log.read_text(), "the second node's list was not read"


PROGRAMS = [word for word in sys.argv[1:] if word != "--blank"]
UNSHARE = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
cases.need("unshare")
if (os.cpu_count() or 1) < 2:
    cases.skip("there is one processor")
cases.run(programs_end_well)
