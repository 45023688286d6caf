"""Each benchmark program, tiny, on libc and on hakmem: the work (its hash) is the same, and malloc came from
the file that was preloaded.

    smoke.py FOLDER-OF-PROGRAMS LIBRARY MUTANT-LIBRARY

MUTANT hands live blocks out twice: the positive control, whose hash must differ.
"""
import json
import os
import subprocess
import sys

PROGRAMS = {
    "random_mixed": ["200000", "400", "7"],
    "larson": ["2", "64", "4"],
    "handoff": ["2", "2", "60"],
    "freeonly": ["4", "4", "20000"],
    "churn": ["20000", "40", "103", "40000"],
    "batch": ["2000", "4"],
    "threads": ["200"],
    "shift": ["4", "30000"],
    "startup": ["3"],
}


def run(folder, program, arguments, library=None):
    environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin")}
    if library:
        environment["LD_PRELOAD"] = library
    done = subprocess.run(
        [os.path.join(folder, program), *arguments, "--json"], env=environment, capture_output=True, timeout=60, check=False
    )
    if done.returncode != 0:
        raise AssertionError(f"{program}: status {done.returncode}: {done.stderr[-500:]!r}")
    return json.loads(done.stdout)


def main():
    folder, library, mutant = sys.argv[1:4]
    for program, arguments in PROGRAMS.items():
        plain, ours = run(folder, program, arguments), run(folder, program, arguments, library)
        assert os.path.basename(library) in os.path.basename(os.path.realpath(ours["malloc"])) or os.path.realpath(
            library
        ) == os.path.realpath(ours["malloc"]), f"{program}: malloc came from {ours['malloc']}"
        assert os.path.realpath(library) != os.path.realpath(plain["malloc"]), f"{program}: hakmem without preload"
        assert plain["hash"] == ours["hash"], f"{program}: hash {ours['hash']} on hakmem, {plain['hash']} on libc"
        assert plain["operations"] == ours["operations"] > 0, program
    if os.path.exists(os.path.join(folder, "random_mixed_fast")):
        fast = run(folder, "random_mixed_fast", PROGRAMS["random_mixed"])
        assert fast["hash"] == run(folder, "random_mixed", PROGRAMS["random_mixed"])["hash"], "the FAST build's hash"
    for program in ("random_mixed", "churn"):
        plain = run(folder, program, PROGRAMS[program])
        broken = run(folder, program, PROGRAMS[program], mutant)
        assert plain["hash"] != broken["hash"], f"{program}: blocks handed out twice do not show in the hash"
    print(f"bench: ok ({len(PROGRAMS)} programs)")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as failure:
        print(f"FAILED: {failure}")
        sys.exit(1)
