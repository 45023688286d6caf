"""hak bench, tiny: every row that has a goal runs on libc and on hakmem, and its goals find their figures; what fails
is said."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys

import forked
import pytest
from cases import until

from lab.run import allocators, goals, process, workloads
from lab.run import tree as running
from lab.store import rows
from lab.verbs import arguments

# These real programs are enough here: tests/apps runs the others.
APPS = ("app-perl", "app-sqlite", "app-memcached", "app-java")
# Goals that need more than libc and hakmem, or all the programs.
NOT_MEASURED = ("/ mimalloc", "lowest of the other three", "apps, ", "phases, ")


def bench(tree, build, *arguments, **variables):
    return forked.hak("bench", "--build-dir", build, *arguments, variables=variables)


def test_every_row_runs_and_every_goal_finds_its_figures(measuring, library):
    pair = [allocators.Allocator("hakmem", str(library)), allocators.Allocator("glibc", None)]
    source, outcomes = measuring(), {}
    for name, row in workloads.ROWS.items():
        if row.is_app and name not in APPS:
            continue
        outcomes[name], entries = source.open_row(row, pair, "hakmem")
        source.run_row(row, entries)
        outcomes[name].wanted = ("glibc",)
        for series in outcomes[name].series:
            assert not series.problem or series.absent, f"{name}, {series.name}: {series.problem}"
            if series.name == "hakmem" and series.results and not row.variants:
                for key in row.shows:
                    assert series.values(key), f"{name} shows {key}, which is not in its results"
    for goal in goals.GOALS:
        values, word = goals.judge(goal, outcomes)
        assert values or any(part in goal.text for part in NOT_MEASURED), f"'{goal.text}': {word}"


def test_command_line_and_rows(tree, build, library, tmp_path):
    path = tmp_path / "rows.jsonl"
    done = bench(
        tree, build, "vm", "profiles", "--tiny", "--lib", f"hakmem={library}", "--against", "glibc", "--json", path
    )
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-1500:]
    assert "faults_after_first" in done.stdout and " lean " in done.stdout
    stored = rows.read([path])
    assert {row.allocator for row in stored} == {"hakmem", "glibc", *allocators.PROFILES}
    assert len({row.session for row in stored}) == 1
    lean = next(row for row in stored if row.allocator == "lean")
    assert lean.settings["HAKMEM_PROFILE"] == "lean" and lean.result["calls_per_100m"] > 0
    # What hakmem counts itself is less than what the kernel counts of the program, and not much less.
    vm = next(row.result for row in stored if row.work == "vm" and row.allocator == "hakmem")
    base = next(row.result for row in stored if row.work == "vm" and row.allocator == "glibc")
    if vm["system_calls"] is not None:
        assert 0 < vm["calls_own"] < vm["system_calls"] < vm["calls_own"] + base["system_calls"] + 40
    assert str(tmp_path) not in path.read_text() and str(build) not in path.read_text()


@pytest.mark.parametrize("words, says", [
    (["nonsense"], "unknown workload 'nonsense'"),
    (["vm", "--against", "nonsense"], "unknown allocator 'nonsense'"),
    (["vm", "--against", "glibc,glibc"], "glibc is named twice"),
    (["vm", "--against", "glibc", "--allocators", "glibc"], "exclude each other"),
    (["vm", "--pin", "999"], "--pin: '999'"),
    (["vm", "--env", "X"], "--env takes NAME=VALUE, not 'X'"),
    (["vm", "--env", "HAKMEM_PROFIL=lean"], "--env: HAKMEM_PROFIL is no option of hakmem; hak options lists all"),
    (
        ["policy", "--env", "HAKMEM_KEEP_MB=1G"],
        "--env: HAKMEM_KEEP_MB=1G: bad value, allowed is 0 to 16777216 MiB;",
    ),
    (["vm", "--runs", "0"], "--runs"),
    (["vm", "--json", "/nonexistent/x"], "--json: /nonexistent/x: No such file"),
    (["vm", "--lib", "hakmem=/nonexistent"], "no file /nonexistent"),
    (["vm", "--lib", "jemalloc=/nonexistent"], "jemalloc: no file /nonexistent"),
    (["vm", "--against", "glibc,other=/nonexistent"], "other: no file /nonexistent"),
    (["vm", "--lib", "mimaloc=/lib/x.so"], "--lib mimaloc: no allocator of that name"),
    (["vm", "--against", ""], "is no name for an allocator"),
])  # fmt: skip
def test_wrong_usage(tree, build, words, says):
    done = bench(tree, build, "--tiny", *words)
    assert done.returncode == 2 and says in done.stderr, done.stderr


def test_to_ask_about_options_writes_no_file(build, library, tmp_path):
    ours = [allocators.Allocator("hakmem", str(library))]
    arguments.check_options({"HAKMEM_STATS_FILE": f"{tmp_path}/summary"}, ours, build)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="HAKMEM_STAT_FILE is no option"):
        arguments.check_options({"HAKMEM_STAT_FILE": f"{tmp_path}/summary"}, ours, build)


def test_a_missing_peer_is_a_line(tree, build, library, no_peers):
    done = bench(tree, build, "vm", "--tiny", "--lib", f"hakmem={library}", "--against", "glibc,snmalloc")
    assert done.returncode == 0 and "snmalloc: not installed; run: hak peers install" in done.stdout, done.stdout


def test_wrong_arguments_of_a_program_are_told(tree, build, library):
    done = bench(tree, build, "random_mixed x", "--tiny", "--lib", f"hakmem={library}", "--against", "glibc")
    assert done.returncode == 1 and "glibc: status 2: random_mixed: ITERATIONS: 'x'" in done.stdout, done.stdout


def test_wrong_work_is_called_so(tree, build, plugins):
    """An allocator that hands live blocks out twice."""
    mutant = f"mutant={plugins / 'test-mutant-preload.so'}"
    done = bench(tree, build, "mixed", "--tiny", "--allocators", f"{mutant},glibc")
    assert done.returncode == 1 and "wrong work" in done.stdout, done.stdout


# --- one program, measured ---------------------------------------------------------------------------


def run(build, *words, **how):
    return process.run(words, process.clean_environment(), how.pop("added", {}), build_dir=str(build), **how)


def test_process_figures(build):
    done = run(build, sys.executable, "-c", "x = bytearray(64 << 20); x[::4096] = b'1' * len(x[::4096]); print('said')")
    assert (done.status, done.stdout, done.problem) == (0, b"said\n", "")
    assert 64 << 10 <= done.rss_peak_kb < 128 << 10
    assert done.faults_minor >= (64 << 20) // os.sysconf("SC_PAGESIZE") // 2
    small = run(build, "/bin/true")
    assert small.rss_peak_kb < 8 << 10, "the peak is the program's own, not that of what started it"


def test_process_failures(build):
    assert run(build, "sh", "-c", "echo why >&2; exit 3").problem == "status 3: why"
    assert run(build, "sh", "-c", "kill -SEGV $$").problem == "died of SIGSEGV"
    assert "No such file" in run(build, "/nonexistent/program").problem
    assert run(build, "sleep", "60", timeout=0.2).problem == "no end after 0.2 s"


def test_process_leaves_nothing_behind(build):
    done = run(build, "sh", "-c", "sleep 600 & echo $!")
    status = pathlib.Path(f"/proc/{int(done.stdout)}/stat")
    until(lambda: not status.exists() or status.read_text().rpartition(")")[2].split()[0] in "ZX", FileNotFoundError)


def test_process_counts_system_calls(build):
    few, many = (run(build, "perl", "-e", f"getppid() for 1..{count}", count_calls=True) for count in (1, 5001))
    if few.system_calls is None:
        pytest.skip("the kernel counts no system calls for us: not root, or no tracing")
    assert many.system_calls - few.system_calls == 5000


def test_environments_are_equally_long(build):
    """So that the stack lies where it lies for all."""
    sizes = set()
    for added in ({}, {"LD_PRELOAD": "/lib/x86_64-linux-gnu/libm.so.6"}, {"A": "x" * 500}):
        done = run(
            build,
            sys.executable,
            "-c",
            "import os; print(os.path.getsize('/proc/self/environ'), len(open('/proc/self/environ').read()))",
            added=added,
        )
        sizes.add(done.stdout.split()[1])
    assert len(sizes) == 1, sizes


def test_only_named_variables_pass(build, monkeypatch):
    monkeypatch.setenv("SECRET", "x")
    done = run(
        build,
        sys.executable,
        "-c",
        "import json, os; print(json.dumps(sorted(os.environ)))",
        added={"HAKMEM_PROFILE": "lean"},
    )
    assert set(json.loads(done.stdout)) <= {
        "PATH",
        "HOME",
        "TMPDIR",
        "LC_ALL",
        process.PADDING,
        "HAKMEM_PROFILE",
        "LC_CTYPE",
    }


def test_environments_that_do_not_fit_stay_whole():
    environment = {"A": "x" * 5000}
    assert process.padded(environment) == environment
    for length in range(4096 - 40, 4097):
        padded = process.padded({"A": "x" * (length - 3 - len(process.PADDING) - 2)})
        assert process.bytes_of(padded) == 4096 or length > 4096


def test_a_build_that_is_asked_for_has_its_own_library(tree, build, tmp_path):
    """Though `hak` names the release build's."""
    elsewhere = tmp_path / "build"
    (elsewhere / "lib").mkdir(parents=True)
    (elsewhere / "bin").symlink_to(build / "bin")
    done = bench(tree, elsewhere, "vm", "--tiny", "--against", "glibc", HAK_LIB=str(build / "lib" / "libhakmem.so"))
    assert done.returncode == 2 and f"no file {elsewhere}/lib/libhakmem.so" in done.stderr, done.stderr


def test_a_full_disk_costs_the_rows_only(tree, build, library):
    done = bench(tree, build, "vm", "--tiny", "--lib", f"hakmem={library}", "--against", "glibc", "--json", "/dev/full")
    assert done.returncode == 1 and "rows are no longer stored: No space left" in done.stderr, done.stderr
    assert "faults_after_first" in done.stdout


def test_percentiles_of_an_own_command(tree, build, library):
    command = "latency 20000 100 1"
    done = bench(tree, build, command, "--runs", "1", "--lib", f"hakmem={library}", "--against", "glibc")
    assert done.returncode == 0 and "too few" in done.stdout and "p99.99" in done.stdout, done.stdout


@pytest.mark.usefixtures("hangups")
def test_a_hangup_ends_it(tree, build, library):
    words = [sys.executable, "-m", "lab", "bench", "--build-dir", str(build), "--lib", f"hakmem={library}"]
    words += ["random_mixed 100000000000 400 1", "--against", "glibc"]
    process = subprocess.Popen(words, env=os.environ | {"PYTHONPATH": str(tree)}, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)  # fmt: skip
    until(lambda: _children_named("random_mixed", process.pid))
    process.send_signal(signal.SIGHUP)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and "stopped after" in said, said
    assert not _children_named("random_mixed", process.pid)


def test_an_interrupted_import_has_no_traceback(tree, tmp_path):
    (tmp_path / "typer.py").write_text("import time\nprint('imported', flush=True)\ntime.sleep(100)\n")
    words = ["env", "--default-signal=INT", sys.executable, "-m", "lab", "bench"]
    process = subprocess.Popen(words, env=os.environ | {"PYTHONPATH": str(tmp_path)}, cwd=tree, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)  # fmt: skip
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT and said == ("", "")


def _children_named(name, pid):
    """Descendants of pid that run a program of this name."""
    found = []
    for child in running.descendants(pid):
        with contextlib.suppress(OSError):
            if pathlib.Path(f"/proc/{child}/comm").read_text() == f"{name}\n":
                found.append(child)
    return found


def test_hashes_that_differ_without_glibc(measuring, library, plugins):
    """Nobody knows who is wrong: both are named."""
    pair = [allocators.Allocator("hakmem", str(library)),
            allocators.Allocator("mutant", str(plugins / "test-mutant-preload.so"))]  # fmt: skip
    source = measuring()
    _, entries = source.open_row(workloads.ROWS["mixed"], pair, "hakmem")
    entries = [entry for entry in entries if entry.series.name in ("hakmem", "mutant")]
    source.run_row(workloads.ROWS["mixed"], entries)
    assert all(entry.series.problem.startswith("hashes differ: hakmem ") for entry in entries)


def test_goals_against_the_best_want_all_peers(measuring, library):
    """With some, a goal can be missed but not met."""
    pair = [allocators.Allocator("hakmem", str(library)), allocators.Allocator("glibc", None)]
    outcome, _ = measuring().open_row(workloads.ROWS["vm"], pair, "hakmem")
    assert set(outcome.missing_peers) == set(allocators.PEERS)
    goal = next(goal for goal in goals.GOALS if goal.text == "vm / best")

    def judged(rate):
        for series, value in zip(outcome.series, (rate, 1.0), strict=True):
            series.results = {run: {"ops_per_s": value} for run in range(1, 12)}
        return goals.judge(goal, {"vm": outcome})

    assert judged(2.0) == ([], "not measured")
    assert judged(0.5) == ([0.5] * 11, "missed")
    outcome.wanted = ("glibc",)
    assert judged(2.0)[1].startswith("met")
