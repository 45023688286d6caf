"""Each benchmark program, tiny, on libc and on hakmem: the work (its hash) is the same, and malloc came from
the file that was preloaded.

    smoke.py FOLDER-OF-PROGRAMS LIBRARY MUTANT-LIBRARY MAPPING-LIBRARY

MUTANT hands live blocks out twice and loses content in realloc: the positive control, whose hash must differ.
MAPPING gives each block a mapping of its own and unmaps it when freed: what the programs read of the process
must show it.
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
    "drawn": ["3", "1", "2", "8"],
    "startup": ["3"],
    "latency": ["20000", "100", "7", "16", "1024", "2", "1000", "256"],
    "vm": ["2097152", "4", "3"],
    "cold_churn": ["256", "8", "64", "256", "300"],
    "large_mix": ["8", "64", "512", "1000"],
    "realloc_grow": ["8", "50", "1024", "2"],
    "idle_return": ["1500", "1000", "500", "20", "1", "1000"],
    "prefork": ["1", "16", "1024", "3", "50", "10"],
    "vmas": ["64", "2000"],
}


def run(folder, program, arguments, library=None):
    environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin")}
    if library:
        environment["LD_PRELOAD"] = library
    done = subprocess.run(
        [os.path.join(folder, program), *arguments, "--json"], env=environment, capture_output=True, timeout=200, check=False
    )
    if done.returncode != 0:
        raise AssertionError(f"{program}: status {done.returncode}: {done.stderr[-500:]!r}")
    return json.loads(done.stdout)


def readings(folder, mapping):
    """What the programs read of the process, on an allocator of which it is known."""
    idle = run(folder, "idle_return", PROGRAMS["idle_return"], mapping)
    assert 0.95 < idle["returned_share_10s"] < 1.05, f"all was given back, {idle['returned_share_10s']} seen"
    assert idle["releasable_kb"] >= 2700 * 4, f"a page a block, {idle['releasable_kb']} KiB releasable"
    plain = run(folder, "idle_return", PROGRAMS["idle_return"])
    assert plain["returned_share_10s"] < 0.5, "libc gives nothing back of a heap with holes"
    vm = run(folder, "vm", PROGRAMS["vm"], mapping)
    pages = 2 * 4 * 2097152 // os.sysconf("SC_PAGESIZE")
    assert vm["faults_after_first"] >= pages, f"{pages} pages faulted in again, {vm['faults_after_first']} seen"
    vmas = run(folder, "vmas", PROGRAMS["vmas"], mapping)
    assert vmas["vmas_end"] > 200, f"two mappings a block, {vmas['vmas_end']} seen"
    plain = run(folder, "prefork", PROGRAMS["prefork"])
    assert 0 < plain["extra_pss_kb"] < plain["child_rss_kb"], "a child shares most of its memory"


def main():
    folder, library, mutant, mapping = sys.argv[1:5]
    for program, arguments in PROGRAMS.items():
        plain, ours = run(folder, program, arguments), run(folder, program, arguments, library)
        assert os.path.realpath(library) == os.path.realpath(ours["malloc"]), f"{program}: malloc of {ours['malloc']}"
        assert os.path.realpath(library) != os.path.realpath(plain["malloc"]), f"{program}: hakmem without preload"
        assert plain["hash"] == ours["hash"], f"{program}: hash {ours['hash']} on hakmem, {plain['hash']} on libc"
        assert plain["operations"] == ours["operations"] > 0, program
    if os.path.exists(os.path.join(folder, "random_mixed_fast")):
        fast = run(folder, "random_mixed_fast", PROGRAMS["random_mixed"])
        assert fast["hash"] == run(folder, "random_mixed", PROGRAMS["random_mixed"])["hash"], "the FAST build's hash"
    for program in ("random_mixed", "churn", "large_mix", "cold_churn", "idle_return", "prefork", "drawn"):
        plain = run(folder, program, PROGRAMS[program])
        broken = run(folder, program, PROGRAMS[program], mutant)
        assert plain["hash"] != broken["hash"], f"{program}: blocks handed out twice do not show in the hash"
    for program, arguments in (("realloc_grow", PROGRAMS["realloc_grow"]), ("drawn", ["4", "1", "1", "20"])):
        try:
            run(folder, program, arguments, mutant)
            raise AssertionError(f"{program}: lost content goes unnoticed")
        except AssertionError as refusal:
            assert "realloc lost the content" in str(refusal), refusal
    for words in ("random_mixed 1000", "random_mixed 1000 --json", "policy_load reuse --events"):
        done = subprocess.run(f"{folder}/{words} >/dev/full", shell=True, capture_output=True, check=False)
        assert done.returncode == 1 and b"No space left" in done.stderr, f"{words} on a full disk: {done}"
    readings(folder, mapping)
    print(f"bench: ok ({len(PROGRAMS)} programs)")


main()
