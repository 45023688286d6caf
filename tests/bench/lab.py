"""hak bench, tiny: every row that has a goal runs on libc and on hakmem, and its goals find their figures.

    lab.py FOLDER-OF-THE-TREE BUILD-FOLDER LIBRARY MUTANT-LIBRARY

MUTANT hands live blocks out twice: the positive control, whose work must be called wrong.
"""
import os
import subprocess
import sys

# One real program is enough here: tests/apps runs them all.
APP = "app-perl"
# Goals that need more than libc and hakmem, or all the programs.
NOT_MEASURED = ("/ mimalloc", "lowest of the other three", "apps, ")


def bench(tree, *arguments):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HAKMEM_", "LD_PRELOAD"))}
    return subprocess.run([sys.executable, "-B", "-m", "lab", "bench", *arguments, "--tiny"], capture_output=True,
                          env=environment | {"PYTHONPATH": tree}, text=True, timeout=100, check=False)  # fmt: skip


def main():
    tree, build, library, mutant = sys.argv[1:5]
    sys.path.insert(0, tree)
    from lab import allocators, goals, runner, workloads

    pair = [allocators.Allocator("hakmem", library), allocators.Allocator("glibc", None)]
    source = runner.Runner(build, runs=1, tiny=True, seed=1, cpu=None, timeout=60, cpu_time=False, settings={})
    outcomes = {}
    for name in goals.ROW_NAMES:
        if name.startswith("app-") and name != APP:
            continue
        row = workloads.ROWS[name]
        outcome = outcomes[name] = source.open_row(row, pair, "hakmem")
        source.run_row(outcome)
        for entry in outcome.entries:
            assert not entry.problem or entry.absent, f"{name}, {entry.name}: {entry.problem}"
            if entry.name == "hakmem" and entry.results:
                missing = [key for key in row.shows if not entry.values(key) and not row.variants]
                assert not missing, f"{name} shows {missing[0]}, which is not in its results"
    for goal in goals.GOALS:
        spread, word = goals.judge(goal, outcomes)
        assert spread or any(part in goal.text for part in NOT_MEASURED), f"'{goal.text}': {word}"

    rows = ["vm", "profiles", "--build-dir", build]
    done = bench(tree, *rows, "--lib", f"hakmem={library}", "--against", "glibc")
    assert done.returncode == 0, f"status {done.returncode}: {done.stdout[-1500:]} {done.stderr[-1500:]}"
    assert "faults_after_first" in done.stdout and "  lean " in done.stdout, done.stdout
    broken = bench(tree, "mixed", "--build-dir", build, "--lib", f"mutant={mutant}", "--allocators", "mutant,glibc")
    assert broken.returncode == 1 and "wrong work" in broken.stdout, f"the mutant passes: {broken.stdout[-1500:]}"
    print(f"lab: ok ({len(outcomes)} rows)")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as failure:
        print(f"FAILED: {failure}")
        sys.exit(1)
