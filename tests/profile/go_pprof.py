"""Go's pprof, for tests that hold hakmem's profiles against it."""

import os
import shutil
import subprocess
from pathlib import Path

FETCHED = Path(__file__).parents[2] / "build/pprof/pprof"  # by tests/run.sh

# Quick to build rather than quick: nothing is optimised or for debuggers, and what serves pages knows no HTTP/2.
PLAINLY = ["-gcflags=all=-N -l -dwarf=false", "-ldflags=-s -w", "-tags=nethttpomithttp2"]


class NoGo(Exception):
    pass


def environment(cache):
    own = {name: value for name, value in os.environ.items() if not name.startswith(("GO", "PPROF"))}
    return own | {"GOCACHE": f"{cache}", "GOTOOLCHAIN": "local", "GOPROXY": "off", "GOFLAGS": "", "CGO_ENABLED": "0"}


def has_pprof(go, cache):
    words = [go, "env", "GOTOOLDIR"]
    tools = subprocess.run(words, capture_output=True, text=True, check=False, env=environment(cache))
    return tools.returncode == 0 and (Path(tools.stdout.strip()) / "pprof").exists()


def find(cache):
    """The words that begin a command of pprof: of a Go that has it, or else one that was fetched, or that Go builds
    into this folder."""
    found = [go for go in (shutil.which("go"), "/usr/lib/go/bin/go") if go and os.path.exists(go)]
    if not found:
        raise NoGo("go is not installed (Debian: golang-go)")
    for go in found:
        if has_pprof(go, cache):
            return [go, "tool", "pprof"]
    if FETCHED.exists():
        return [str(FETCHED)]
    words = [found[0], "build", *PLAINLY, "-o", f"{cache}/pprof", "cmd/pprof"]
    subprocess.run(words, check=True, env=environment(cache), timeout=500)
    return [f"{cache}/pprof"]
