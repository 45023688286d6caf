"""Programs on a machine with two NUMA nodes: processor 0 is one, the others are the other.

    nodes.py [--blank] PROGRAM...

The kernel's folder of nodes is covered by a made-up one, in a mount namespace. Each program must end well, and strace must see one of them read the second node's list. With --blank no node has processors: nothing is read then.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

FOLDER = "/sys/devices/system/node"
COVER = f'mount --bind "$1" {FOLDER} && shift && exec "$@"'
SKIPPED = 77


def covered(tree, *command):
    return [*UNSHARE, "sh", "-c", COVER, "sh", str(tree), *command]


def make_tree(tree, is_blank):
    last = (os.cpu_count() or 1) - 1
    (tree / "has_cpu").write_text("\n" if is_blank else "0-1\n")
    for node, cpus in enumerate(("0", f"1-{last}")):
        (tree / f"node{node}").mkdir()
        (tree / f"node{node}" / "cpulist").write_text(f"{cpus}\n")


def main(words):
    is_blank = words[:1] == ["--blank"]
    programs = words[is_blank:]
    with tempfile.TemporaryDirectory(prefix="hakmem-nodes-") as folder:
        tree, log = pathlib.Path(folder, "tree"), pathlib.Path(folder, "log")
        tree.mkdir()
        make_tree(tree, is_blank)
        if subprocess.run(covered(tree, "true"), capture_output=True).returncode != 0:
            print("skipped: no mount namespace may be made, or the kernel has no folder of nodes")
            return SKIPPED
        for program in programs:
            ended = subprocess.run(covered(tree, program), timeout=500)
            if ended.returncode != 0:
                print(f"FAILED: {program} on two nodes: {ended.returncode}")
                return 1
        if shutil.which("strace") is None:
            return 0
        subprocess.run(["strace", "-f", "-e", "trace=openat", "-o", log, *covered(tree, programs[0])], timeout=500)
        is_read = f"{FOLDER}/node1/cpulist" in log.read_text()
        print("the second node's list was read" if is_read else "FAILED: the second node's list was not read")
        return 0 if is_read else 1


if __name__ == "__main__":
    UNSHARE = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
    sys.exit(SKIPPED if (os.cpu_count() or 1) < 2 or shutil.which("unshare") is None else main(sys.argv[1:]))
