"""examples/Containerfile: by --lint what can be said without building; else it is built and run, in folders that stand for images.

    container.py SOURCE [--lint]

No builder of containers is needed: the base images are what mmdebstrap makes of Debian's archive, RUN is chroot. Each run
judges files that are wrong, and must refuse them.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

KNOWN = ("FROM", "RUN", "WORKDIR", "COPY", "ENV", "USER", "EXPOSE", "CMD")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SUITES = {"docker.io/library/debian:12": "bookworm", "docker.io/library/debian:12-slim": "bookworm"}
PATIENCE_S = 60


def instructions(text: str) -> list[tuple[str, str]]:
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    return [(word, rest.strip()) for line in lines.replace("\\\n", " ").splitlines() if line.strip()
            for word, _, rest in [line.strip().partition(" ")]]  # fmt: skip


def options(rest: str) -> tuple[dict[str, str], list[str]]:
    words = shlex.split(rest)
    return (dict(word[2:].split("=", 1) for word in words if word.startswith("--")),
            [word for word in words if not word.startswith("--")])  # fmt: skip


def variables(rest: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in shlex.split(rest))


def problems(text: str, source: pathlib.Path) -> list[str]:
    found, wrong = instructions(text), []
    stages = [match[1] for word, rest in found if word == "FROM" and (match := re.search(r" AS (\w+)$", rest))]
    copied, preloads, user, last = set(), set(), "root", ""
    for word, rest in found:
        last = word
        if word not in KNOWN:
            wrong.append(f"{word} is not known")
        elif word == "FROM":
            copied, preloads, user = set(), set(), "root"
            if rest.split(" AS ")[0] not in SUITES:
                wrong.append(f"{rest}: not a base image of this test")
        elif word == "COPY":
            flags, (*names, to) = options(rest)
            copied.add(to)
            if "from" in flags and flags["from"] not in stages:
                wrong.append(f"there is no stage {flags['from']}")
            wrong += [f"there is no {name}" for name in names if "from" not in flags and not (source / name).exists()]
        elif word == "ENV":
            preloads.add(variables(rest).get("LD_PRELOAD", ""))
        elif word == "USER":
            user = rest.split(":")[0]
    if user in ("root", "0"):
        wrong.append("the service is root")
    if not preloads & copied - {""}:
        wrong.append("what is preloaded was not copied")
    if last != "CMD":
        wrong.append("no CMD at the end")
    return wrong


def control(text: str, source: pathlib.Path) -> None:
    for old, new in (("USER 10001:10001", ""), ("--from=build", "--from=other"), ("ENV LD_PRELOAD=", "ENV X="), ("EXPOSE", "EXPOSED"),
                     ("COPY . .", "COPY nowhere ."), ("CMD [", "USER 1\n#"), ("/usr/lib/libhakmem.so\n", "/lib/other.so\n")):  # fmt: skip
        assert old in text and problems(text.replace(old, new, 1), source), f"'{new}' in the place of '{old}' is not noticed"


class Image:
    """A folder that stands for an image while it is made."""

    def __init__(self, root: pathlib.Path):
        self.root, self.env, self.folder, self.user = root, {"PATH": PATH}, "/", "0:0"

    def command(self, words: list[str]) -> list[str]:
        named = [f"{name}={value}" for name, value in self.env.items()]
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", f"--mount-proc={self.root}/proc", "chroot",
                f"--userspec={self.user}", self.root, "/usr/bin/env", "-i", *named, "/bin/sh", "-c",
                'cd "$0" && exec "$@"', self.folder, *words]  # fmt: skip

    def run(self, words: list[str]) -> str:
        done = subprocess.run(self.command(words), capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            sys.exit(f"FAILED: {shlex.join(words)}: {done.stdout[-2000:]}{done.stderr[-3000:]}")
        return done.stdout

    def inside(self, path: str) -> pathlib.Path:
        return self.root / os.path.normpath(os.path.join(self.folder, path)).lstrip("/")

    def copy(self, origin: pathlib.Path, to: str, flags: dict[str, str]) -> None:
        target = self.inside(to)
        if origin.is_dir():
            shutil.copytree(origin, target, symlinks=True, dirs_exist_ok=True)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(origin, target)
        target.chmod(int(flags.get("chmod", "0644"), 8))


def base(suite: str, root: pathlib.Path) -> None:
    lists = [path for pattern in ("sources.list.d/*.sources", "sources.list") for path in pathlib.Path("/etc/apt").glob(pattern)]
    mirror = "\n".join(path.read_text() for path in lists)
    words = ["mmdebstrap", "--quiet", "--variant=apt", '--aptopt=Acquire::Retries "5"', suite, root, "-"]
    done = subprocess.run(words, input=mirror, text=True, capture_output=True)
    if done.returncode:
        print(f"skipped: there is no clean system to be had: {done.stderr.strip().splitlines()[-1:]}")
        sys.exit(77)
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")


def build(text: str, context: pathlib.Path, work: pathlib.Path) -> tuple[Image, list[str]]:
    stages: dict[str, Image] = {}
    for word, rest in instructions(text):
        if word == "FROM":
            name, _, stage = rest.partition(" AS ")
            pristine = work / "base"
            if not pristine.exists():
                base(SUITES[name], pristine)
            root = work / (stage or "last")
            subprocess.run(["cp", "-a", "--reflink=auto", pristine, root], check=True)
            image = stages[stage] = Image(root)
        elif word == "RUN":
            image.run(["sh", "-ec", rest])
        elif word == "WORKDIR":
            image.folder = rest
            image.inside(".").mkdir(parents=True, exist_ok=True)
        elif word == "ENV":
            image.env |= variables(rest)
        elif word == "USER":
            image.user = rest
        elif word == "COPY":
            flags, (*names, to) = options(rest)
            for name in names:
                image.copy(stages[flags["from"]].inside(name) if "from" in flags else context / name, to, flags)
        elif word == "CMD":
            return image, json.loads(rest)
    raise ValueError("no CMD")


def serve(image: Image, words: list[str]) -> str:
    """Starts the service in a network of its own, asks it for a page, and says who it is and what it has mapped."""
    look = """import os, sys, time, urllib.request
end = time.monotonic() + %d
while True:
    try:
        page = urllib.request.urlopen("http://127.0.0.1:8080/").read(); break
    except OSError:
        if time.monotonic() > end: sys.exit("the service does not answer")
        time.sleep(0.1)
for pid in filter(str.isdigit, os.listdir("/proc")):
    if open(f"/proc/{pid}/cmdline", "rb").read().startswith(b"python3\\0-m\\0http.server"):
        print("served", len(page) > 0, "uid", os.stat(f"/proc/{pid}").st_uid, "hakmem", "libhakmem" in open(f"/proc/{pid}/maps").read())
""" % PATIENCE_S
    service = shlex.join(map(str, image.command(words)))
    ask = shlex.join(["chroot", str(image.root), "/usr/bin/python3", "-c", look])
    steps = ("ip link set lo up", f"mount -t proc proc {image.root}/proc", f"{service} >/dev/null 2>&1 &", f"{ask}; status=$?",
             "kill $!", "exit $status")  # fmt: skip
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as script:
        script.write("\n".join(steps) + "\n")
        script.flush()
        done = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "sh", script.name], capture_output=True,
                              text=True, timeout=2 * PATIENCE_S)  # fmt: skip
    return done.stdout + done.stderr


def main(source: pathlib.Path, is_lint: bool) -> None:
    text = (source / "examples/Containerfile").read_text(encoding="utf-8")
    control(text, source)
    if found := problems(text, source):
        sys.exit("FAILED: " + "; ".join(found))
    if is_lint:
        print("examples/Containerfile is in order")
        return
    if os.geteuid() != 0 or not all(map(shutil.which, ("mmdebstrap", "unshare", "ip"))):
        print("skipped: needs root, mmdebstrap, unshare and ip")
        sys.exit(77)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        context = work / "context"
        context.mkdir()
        files = subprocess.run(["git", "ls-files", "-z"], cwd=source, capture_output=True, check=True).stdout
        packed = subprocess.run(["tar", "--null", "-T", "-", "-cf", "-"], cwd=source, input=files, capture_output=True, check=True)
        subprocess.run(["tar", "-xf", "-", "-C", context], input=packed.stdout, check=True)
        image, words = build(text, context, work)
        said = serve(image, words)
        if said != "served True uid 10001 hakmem True\n":
            sys.exit(f"FAILED: {said}")
        if image.inside("/usr/bin/cc").exists() or image.inside("/src").exists():
            sys.exit("FAILED: the build's tools or sources are in the image")
        del image.env["LD_PRELOAD"]  # the control
        said = serve(image, words)
        if said != "served True uid 10001 hakmem False\n":
            sys.exit(f"FAILED: without LD_PRELOAD: {said}")
    print(f"the image is built in {time.monotonic() - begun:.0f} s, and serves on hakmem")


main(pathlib.Path(sys.argv[1]).resolve(), "--lint" in sys.argv)
