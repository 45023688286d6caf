"""bench/measure: nothing of what it started outlives the one who started it, and nothing starts after that."""

import contextlib
import functools
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import uuid

import made_compare
import pytest
from cases import until

from lab.run import process

WORK = "sleep 100 & sleep 100"  # a command with a descendant
STARTER = """
import sys
from lab.run import process
process.run(["sh", "-c", sys.argv[2]], process.clean_environment({"MARK": sys.argv[3]}), {}, build_dir=sys.argv[1])
"""


marked = functools.partial(made_compare.marked, file="environ")


@pytest.fixture
def mark():
    name = uuid.uuid4().hex
    yield name
    for pid in marked(name):
        with contextlib.suppress(ProcessLookupError):  # one that is killed may end another
            os.kill(pid, signal.SIGKILL)


def test_nothing_outlives_a_killed_lab(tree, build, mark):
    starter = subprocess.Popen([sys.executable, "-c", STARTER, build, WORK, mark], cwd=tree)
    until(lambda: len(marked(mark)) >= 4)  # measure, the shell, and two sleeps
    starter.kill()
    starter.wait()
    until(lambda: not marked(mark))


def test_sigterm_ends_all_of_it(build, mark):
    measure = subprocess.Popen([build / "bin" / "measure", "1", "sh", "-c", WORK], env=os.environ | {"MARK": mark},
                               stdout=subprocess.PIPE, start_new_session=True)  # fmt: skip
    until(lambda: len(marked(mark)) >= 4)
    measure.terminate()
    until(lambda: not marked(mark) - {measure.pid})
    assert measure.wait() == -signal.SIGKILL
    measure.stdout.close()


def test_control_what_outlives_is_seen(tree, build, mark):
    """Not the leader of a group, as when it is started by hand: it does not take itself for the owner."""
    text = f"import subprocess; subprocess.run([{str(build / 'bin' / 'measure')!r}, '1', 'sh', '-c', {WORK!r}])"
    starter = subprocess.Popen([sys.executable, "-c", text], env=os.environ | {"MARK": mark}, stdout=subprocess.DEVNULL)
    until(lambda: len(marked(mark)) >= 5)
    starter.kill()
    starter.wait()
    time.sleep(0.3)
    assert len(marked(mark)) >= 4


@pytest.mark.parametrize("is_read", [True, False])
def test_nothing_starts_for_a_starter_that_is_gone(build, tmp_path, is_read):
    """It died before measure could ask to be told: nobody reads the report."""
    reading, writing = os.pipe()
    if not is_read:
        os.close(reading)
    done = subprocess.run([build / "bin" / "measure", str(writing), "touch", tmp_path / "ran"], pass_fds=(writing,),
                          capture_output=True, text=True, start_new_session=True, check=False)  # fmt: skip
    os.close(writing)
    assert (tmp_path / "ran").exists() == is_read and (done.returncode == 0) == is_read
    assert is_read or done.stderr.strip().endswith("the starter is gone")
    if is_read:
        assert b'"status": 0' in os.read(reading, 4096)
        os.close(reading)


HOLDER = """
import time
from lab.run import process
links = process.Links()
print(links.preloadable("/none"), flush=True)
time.sleep(100)
"""


def test_folders_of_killed_runs_go_with_the_next(tree, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    command, variables = [sys.executable, "-c", HOLDER], os.environ | {"TMPDIR": str(tmp_path)}
    killed, alive = (subprocess.Popen(command, env=variables, cwd=tree, stdout=subprocess.PIPE) for _ in range(2))
    with killed, alive:
        folders = [pathlib.Path(os.fsdecode(holder.stdout.readline())).parent for holder in (killed, alive)]
        killed.kill()
        killed.wait()
        process.Links()
        assert all(folder.is_dir() for folder in folders), "of the last minute: it may be about to be locked"
        for folder in folders:
            os.utime(folder, (0, 0))
        process.Links()
        alive.kill()
    assert list(tmp_path.iterdir()) == folders[1:]
