"""The setting of transparent huge pages is switched for a row, and put back however it ends: on a file that stands for
the system's."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest
from cases import until

from lab.run import allocators, huge_pages, workloads

TREE = pathlib.Path(__file__).resolve().parents[2]
HOLDS = """
import pathlib, sys, time
from lab.run import huge_pages
with huge_pages.switched("always", pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(1000)
"""


@pytest.fixture
def setting(tmp_path):
    """It does not put brackets around the word that was written; what was never written has some."""
    path = tmp_path / "enabled"
    path.write_text("always [madvise] never\n")
    return path


def test_it_is_put_back(setting):
    assert huge_pages.read(setting) == "madvise" and huge_pages.missing(setting) == ""
    with huge_pages.switched("never", setting):
        assert setting.read_text() == "never"
    assert setting.read_text() == "madvise"
    with pytest.raises(KeyboardInterrupt), huge_pages.switched("always", setting):
        raise KeyboardInterrupt
    assert setting.read_text() == "madvise"
    with huge_pages.switched("", setting):
        assert setting.read_text() == "madvise"


@pytest.mark.usefixtures("hangups")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_is_put_back_when_the_lab_is_killed(setting, number):
    with subprocess.Popen([sys.executable, "-c", HOLDS, str(setting)], cwd=TREE, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, process_group=0) as holder:  # fmt: skip
        assert holder.stdout.readline() == b"held\n" and setting.read_text() == "always"
        os.killpg(holder.pid, number)  # all of its group, as a terminal does
    until(lambda: setting.read_text() == "madvise")


def test_a_setting_that_is_not_taken_is_said(setting, measuring, library, monkeypatch):
    setting.unlink()
    assert huge_pages.missing(setting).startswith("no ")
    refuses = pathlib.Path("/proc/self/oom_score")  # nobody may write it
    with pytest.raises(huge_pages.Refused), huge_pages.switched("always", refuses):
        pytest.fail("it was taken")
    row = workloads.ROWS["thp-always-mixed"]
    pair = [allocators.Allocator("hakmem", str(library)), allocators.Allocator("glibc", None)]
    source = measuring(is_tiny=False)
    monkeypatch.setattr(huge_pages, "missing", lambda: "cannot write it")
    outcome, entries = source.open_row(row, pair, "hakmem")
    source.run_row(row, entries)
    assert [series.problem for series in outcome.series] == ["cannot write it"] * 2
    assert all(series.absent and not series.results for series in outcome.series)


def test_a_row_is_measured_under_its_setting(setting, measuring, library, monkeypatch):
    seen, switch = [], huge_pages.switched
    monkeypatch.setattr(huge_pages, "switched", lambda word: switch(word, setting))
    monkeypatch.setattr(huge_pages, "missing", lambda: "")
    row = workloads.replace(workloads.ROWS["thp-never-mixed"], command=workloads.ROWS["thp-never-mixed"].tiny)
    source = measuring(is_tiny=False, on_run=lambda *_: seen.append(setting.read_text()))
    outcome, entries = source.open_row(row, [allocators.Allocator("hakmem", str(library))], "hakmem")
    source.run_row(row, entries)
    assert seen == ["never"] and outcome.of("hakmem").results and setting.read_text() == "madvise"


def test_no_row_switches_it_unasked():
    asked = {row.name for row in workloads.ROWS.values() if row.huge_pages}
    assert len(asked) == len(huge_pages.WORDS) * len(workloads.UNDER_HUGE_PAGES)
    for words in ([], ["all"], ["memory"], ["apps", "phases"]):
        assert not asked & {row.name for row in workloads.chosen(words, [])}
