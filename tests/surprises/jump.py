"""The wrapper of syscall leaves no frame: clone and vfork return twice. prctl has one, which the judge must see.

    jump.py LIBRARY
"""
import re
import shutil
import subprocess
import sys


def code_of(library, name):
    listed = subprocess.run(["objdump", "-d", "--no-show-raw-insn", library], capture_output=True, text=True, check=True)
    body = re.search(rf"^[0-9a-f]+ <{name}>:\n(.*?)\n\n", listed.stdout + "\n\n", re.M | re.S)
    return [line.split("\t")[1].strip() for line in body.group(1).splitlines() if "\t" in line]


def has_frame(code):
    return any(re.match(r"push|call|bl |blr|stp|sub\s+.*(%rsp|sp)", line) for line in code)


if shutil.which("objdump") is None:
    print("objdump is not installed")
    sys.exit(77)
ours, other = code_of(sys.argv[1], "syscall"), code_of(sys.argv[1], "prctl")
if has_frame(ours) or not any(re.match(r"jmp\s+\*|br ", line) for line in ours):
    sys.exit("FAILED: syscall has a frame:\n" + "\n".join(ours))
if not has_frame(other):
    sys.exit("FAILED: the judge sees no frame in prctl")
print("jump: ok")
