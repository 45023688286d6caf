"""hak compare on servers: they are waited for, loaded and stopped, and nothing of them is left."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest
from cases import until
from made_compare import LIBC, gone, marked

from lab.run import compare, server
from lab.run.allocators import ROOT
from lab.store import rows

pytest_plugins = ("made_compare",)

SERVER = """
import os, signal, socket, sys, time
mode = sys.argv[1]
if mode == "dies":
    sys.exit("no room")
if mode == "daemon" and os.fork():
    time.sleep(60)
if mode == "daemon":
    os.setsid()
    if os.fork():
        os._exit(0)
if mode == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if mode == "mute":
    time.sleep(60)
listening = socket.socket(socket.AF_UNIX)
with __import__("contextlib").suppress(OSError):
    os.unlink(sys.argv[2])
listening.bind(sys.argv[2])
listening.listen()
while True:
    connection = listening.accept()[0]
    if mode == "quits":
        os._exit(5)
    work = [bytes(1000) for _ in range(20000)]
    connection.sendall(b"answer\\n")
    connection.close()
"""
LOAD = """
import socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
print(connection.recv(100))
"""


@pytest.fixture
def served(hak, tmp_path):
    """served(MODE, WORD...) compares a small server; its folder's path is the mark of all its processes."""
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "load.py").write_text(LOAD)

    def words(mode, *more, until=None):
        return ["--runs", "1", "--against", f"again={LIBC}", *map(str, more), "--until", until or run.load, "--",
                "python3", "-IS", f"{tmp_path}/server.py", mode, f"{tmp_path}/socket"]  # fmt: skip

    def run(mode, *more, until=None):
        return hak(*words(mode, *more, until=until))

    run.words, run.mark = words, f"{tmp_path}/server.py"
    run.load = f"python3 -IS {tmp_path}/load.py {tmp_path}/socket"
    return run


def test_a_server_is_loaded_and_stopped(served, hak):
    done = served("plain", "--same-output")
    assert done.returncode == 0, done.stderr
    assert [row.allocator for row in hak.rows()] == ["glibc", "again"]
    result = hak.rows()[0].result
    assert result["rss_peak_kb"] >= result["rss_end_kb"] > 5000
    assert result["cpu_seconds"] < result["seconds"] < 60
    assert result["faults"] > 1000
    assert "RSS at the end of the load" in done.stdout
    assert gone(served.mark)


@pytest.mark.parametrize(("mode", "seconds", "sentence"), [
    ("dies", 60, "the server ended before it served: status 1: no room"),
    ("quits", 60, "the server ended during the load: status 5"),
    ("mute", 1, "no process of it listens after 1 s"),
])  # fmt: skip
def test_a_server_that_fails(served, mode, seconds, sentence):
    done = served(mode, "--timeout", seconds)
    assert done.returncode == 1
    assert sentence in done.stderr
    assert gone(served.mark)


def test_ready(served):
    assert "--ready did not succeed in 1 s" in served("plain", "--timeout", "1", "--ready", "false").stderr
    assert served("plain", "--ready", served.load).returncode == 0


def test_a_load_that_fails_or_hangs(served):
    done = served("plain", until="echo bad >&2; exit 4")
    assert "the load failed: status 4: bad" in done.stderr
    done = served("plain", "--timeout", "4", until="sleep 30")
    assert "the load failed: no end after 4 s" in done.stderr
    assert gone(served.mark)


def test_daemons_do_not_stay(served):
    done = served("daemon")
    assert done.returncode == 0, done.stderr
    assert gone(served.mark)


def test_a_server_that_is_called_measure(served, hak, tmp_path, monkeypatch):
    """Only the lab's own file starts programs; another of that name is the user's."""
    shutil.copy(os.path.realpath(sys.executable), tmp_path / "measure")

    def words(*more):
        return [tmp_path / "measure" if word == "python3" else word for word in served.words("plain", *more)]

    done = hak(*words())
    assert done.returncode == 0, done.stderr
    assert hak.rows()[0].result["rss_end_kb"] > 5000
    monkeypatch.setattr(server.Server, "_is_starter", lambda _self, pid: b"measure" in
                        pathlib.Path(f"/proc/{pid}/cmdline").read_bytes())  # fmt: skip
    assert "no process of it listens after 1 s" in hak(*words("--timeout", "1")).stderr  # the control
    assert gone(served.mark)


def test_a_deaf_server_is_killed(served, build, monkeypatch, tmp_path):
    monkeypatch.setattr(server, "STOP_SECONDS", 0.3)
    words = served.words("deaf")
    plan = compare.Plan(words[words.index("--") + 1 :], str(build), dict(os.environ), 1, 20.0,
                        until=words[words.index("--until") + 1])  # fmt: skip
    comparison = compare.Comparison(plan, [compare.Candidate(compare.Allocator("glibc", None))])
    comparison.run()
    assert comparison.reference.results[1]["seconds"] > 0
    assert gone(served.mark)


@pytest.mark.usefixtures("hangups")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_left_when_it_is_stopped(served, hak, tmp_path, number):
    process = subprocess.Popen(hak.words(*served.words("daemon", until="sleep 200")), cwd=ROOT,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    until((tmp_path / "socket").exists)
    assert len(marked(served.mark)) >= 4  # hak, measure, the starter, the daemon: the control of gone()
    time.sleep(0.2)
    process.send_signal(number)
    said = process.communicate(timeout=60)[0].decode()
    assert process.returncode == 130
    assert "no recommendation: glibc was not measured" in said
    assert gone(served.mark)


def test_redis(hak, tmp_path):
    if not (shutil.which("redis-server") and shutil.which("redis-benchmark")):
        pytest.skip("redis is not installed")
    socket = tmp_path / "redis"
    done = hak("--runs", 1, "--against", "hakmem", "--until",
               f"redis-benchmark -s {socket} -q -t set,lpush -n 5000 -r 5000 -d 100", "--ready",
               f"redis-cli -s {socket} ping", "--",
               "redis-server", "--port", "0", "--unixsocket", socket, "--save", "")  # fmt: skip
    assert done.returncode == 0, done.stderr
    names = [row.allocator for row in hak.rows()]
    assert names in (["as-is", "glibc", "hakmem"], ["glibc", "hakmem"])
    assert json.loads(rows.dump(hak.rows()[0]))["kind"] == "compare"
    assert gone(str(socket))
