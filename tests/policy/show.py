"""hakmem-policy show: what a running program has learned is printed as it is, and the program does not notice.

show.py TOOL LIBRARY LEARNER CHANGER [--static CHANGER] [--recorded RECORDER SIMULATOR]
Each run first shows that the judges refuse what is wrong.
"""

import argparse
import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import layout as policy

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cases

SHOWS, SHOWS_SOME, READS_MAX = 15, 5, 20
STRATEGIES = ("at_once", "10ms", "100ms", "1s", "10s", "warm")
NOBODY = 65534


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("library")
    parser.add_argument("learner")
    parser.add_argument("changer")
    parser.add_argument("--static")
    parser.add_argument("--recorded", nargs=2)
    return parser.parse_args()


ARGUMENTS = arguments()


def on_hakmem(mode="evolving", **more):
    return cases.environment(LD_PRELOAD=ARGUMENTS.library, HAKMEM_POLICY=mode, HAKMEM_PURGE_DELAY_MS="50", **more)


def tool(*words, **options):
    return cases.tool(ARGUMENTS.tool, *words, **options)


def shown(pid):
    found = json.loads(tool("show", "--json", pid))
    judge(found)
    return found


def judge(found):
    """What holds of everything that is shown."""
    assert found["unsound"] == 0, f"{found['unsound']} arms that cannot be so"
    totals = found["totals"]
    for arm in found["arms"] + found["priors"]:
        assert all(-400 <= arm["ratings"][name] <= 400 for name in STRATEGIES), arm
        assert arm["leader"] in STRATEGIES and arm["switches"] <= arm["matches"], arm
    assert totals["arms"] == sum(arm["kind"] != "rest" for arm in found["arms"]), totals
    if not found["skewed"] and totals["displaced"] == 0:
        for name in STRATEGIES:
            assert totals["fixed"][name] == sum(arm["fixed"][name] for arm in found["arms"]), (name, totals)
        assert totals["acted"] == sum(arm["acted"] for arm in found["arms"])
        assert totals["best_of_arm"] == sum(min(arm["fixed"].values()) for arm in found["arms"])
    assert totals["best_of_arm"] <= min(totals["fixed"].values()) and found["costs"]["fault_ns"] > 0


def ratings(found):
    """By site and range, in the units of a file."""
    return {
        (arm["tag"] << policy.TAG_SHIFT | arm["offset"], arm["bytes_min"].bit_length() - 5): tuple(
            round(256 * arm["ratings"][name]) for name in STRATEGIES
        )
        for arm in found["arms"]
        if arm["kind"] == "site" and arm["matches"] > 0
    }


def judge_same(shown_ratings, content):
    small = (1 << 24) - 1
    filed = {
        (site, place): values
        for (kind, site, place), values in content.ratings.items()
        if kind == policy.SITE and site >> policy.TAG_SHIFT != small
    }
    assert shown_ratings and shown_ratings == filed, f"{shown_ratings} shown, {filed} in the file"


refuses = functools.partial(cases.refuses, AssertionError)


def is_read_without_faults(pid):
    """It may have some of its own meanwhile: it is just about to wait."""
    before = Path(f"/proc/{pid}/stat").read_text().split()[7:13]
    shown(pid)
    return before == Path(f"/proc/{pid}/stat").read_text().split()[7:13]


def what_is_shown_is_what_is_saved(folder):
    path = folder / "file"
    with cases.running(
        ARGUMENTS.learner, "a", "24", "b", "24", "wait", env=on_hakmem(HAKMEM_POLICY_FILE=str(path))
    ) as process:
        assert any(is_read_without_faults(process.pid) for _ in range(READS_MAX)), "the program had page faults each time"
        found = shown(process.pid)
        table = tool("show", process.pid)
    content = policy.read(path.read_bytes())
    judge_same(ratings(json.loads(tool("show", "--json", path))), content)
    # The end of a program concludes matches that were open; who only reads the file has what is in it.
    assert ratings(found).keys() == ratings(json.loads(tool("show", "--json", path))).keys()
    with cases.running(
        ARGUMENTS.learner, "a", "24", "wait", env=on_hakmem("frozen", HAKMEM_POLICY_FILE=str(path))
    ) as process:
        frozen = ratings(shown(process.pid))
    judge_same(frozen, content)
    ours = [arm for arm in found["arms"] if arm["kind"] == "site"]
    names = {arm["module"] for arm in ours}
    assert names == {Path(ARGUMENTS.learner).name[:27]}, names
    for arm in ours:
        assert f"+0x{arm['offset']:x} " in table, table
    assert "1-2 MiB" in table and "2-4 MiB" in table and "regret" in table, table
    assert max(map(len, table.splitlines())) <= 120, table
    wrong = {key: values[1:] + values[:1] for key, values in frozen.items()}
    refuses(judge_same, wrong, content)
    refuses(judge, found | {"unsound": 1})
    refuses(judge, found | {"totals": found["totals"] | {"acted": found["totals"]["acted"] + 1}})


def judge_whole(found):
    """Of a program that sets all sums of all arms to one number, and then to the next."""
    for arm in found["arms"]:
        assert {arm["acted"]} == set(arm["fixed"].values()), f"half of a change: {arm}"
    numbers = {arm["acted"] for arm in found["arms"]}
    assert len(found["arms"]) == 64 and (found["skewed"] or len(numbers) == 1), numbers


def half_a_change_is_never_shown(_):
    with cases.running(ARGUMENTS.changer, "steps", env=cases.environment()) as process:
        views = [json.loads(tool("show", "--json", process.pid)) for _ in range(SHOWS_SOME)]
    for view in views:
        judge_whole(view)
    assert any(view["arms"][0]["acted"] != views[0]["arms"][0]["acted"] for view in views), "nothing changed"
    with cases.running(ARGUMENTS.changer, "torn", env=cases.environment()) as process:
        for _ in range(SHOWS):
            try:
                judge_whole(json.loads(tool("show", "--json", process.pid)))
            except AssertionError:
                break
        else:
            sys.exit("without the counter every change was seen whole: the test cannot tell")


def threads_that_learn_are_shown(_, changer=None, env=None, shows=SHOWS):
    with cases.running(changer or ARGUMENTS.changer, "threads", "4", env=env or on_hakmem()) as process:
        matches = 0
        for _ in range(shows):
            found = shown(process.pid)
            assert found["arms"] and found["totals"]["matches"] >= matches, "matches are lost"
            matches = found["totals"]["matches"]
        assert "cost" in tool("show", process.pid)
        process.send_signal(signal.SIGSTOP)
        try:  # it may have been stopped within a change
            found = subprocess.run(
                [ARGUMENTS.tool, "show", str(process.pid)], check=False, capture_output=True, timeout=200
            )
            assert found.returncode == 0 or b"was stopped" in found.stderr, found
        finally:
            process.send_signal(signal.SIGCONT)


def static_programs(folder):
    if not ARGUMENTS.static:
        print("there is no static program")
        return
    env = cases.environment(HAKMEM_POLICY="evolving", HAKMEM_PURGE_DELAY_MS="50")
    threads_that_learn_are_shown(folder, ARGUMENTS.static, env, SHOWS_SOME)
    with cases.running(ARGUMENTS.static, "threads", "1", env=env | {"HAKMEM_POLICY": "off"}) as process:
        tool("show", process.pid, status=1, said="is not on hakmem, or has it linked in and has learned nothing")


def a_library_of_another_name(folder):
    copy = folder / "other.so"
    copy.write_bytes(Path(ARGUMENTS.library).read_bytes())
    with cases.running(ARGUMENTS.learner, "a", "24", "wait", env=on_hakmem() | {"LD_PRELOAD": str(copy)}) as process:
        assert shown(process.pid)["arms"]


def a_fixed_strategy_leads_everywhere(folder):
    path = folder / "file"
    for name in STRATEGIES:
        tool("fixed", name, path)
        with cases.running(
            ARGUMENTS.learner, "a", "24", "wait", env=on_hakmem("frozen", HAKMEM_POLICY_FILE=str(path))
        ) as process:
            found = shown(process.pid)
            assert len(found["priors"]) == 32 and {prior["leader"] for prior in found["priors"]} == {name}, name
            assert all(arm["kind"] == "rest" for arm in found["arms"]), found["arms"]
            assert "no site has ratings of its own" in tool("show", process.pid)
    tool("fixed", "2s", path, status=2, said="unknown strategy '2s'")


def who_cannot_be_shown(_):
    with cases.running(ARGUMENTS.changer, "threads", "1", env=cases.environment()) as process:
        tool("show", process.pid, status=1, said="is not on hakmem")
        if os.getuid() == 0:
            kept = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
            try:
                tool("show", process.pid, status=1, said="not permitted", **kept)
            except PermissionError:
                print("another user cannot run the tool here")
    with cases.running(ARGUMENTS.learner, "a", "24", "wait", env=on_hakmem("off")) as process:
        tool("show", process.pid, status=1, said="is on hakmem and has learned nothing: HAKMEM_POLICY is off")
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        tool("show", process.pid, status=1, said=f"process {process.pid} has no memory of its own: it has ended")
    tool("show", process.pid, status=1, said=f"there is no process {process.pid}")
    tool("show", "0", status=1, said="there is no process 0")
    tool("show", "9" * 30, status=1, said="there is no process 9999")
    tool("show", status=2, said="takes show PID")
    tool("show", "1", "2", status=2, said="takes show PID")
    tool("--nonsense", status=2, said="unknown option '--nonsense'")


def what_is_not_in_order(folder):
    says = {"other": "another version of hakmem", "damaged": "is damaged", "stuck": "does not hold still"}
    for what, said in says.items():
        with cases.running(ARGUMENTS.changer, what, env=cases.environment()) as process:
            tool("show", process.pid, status=1, said=said)
    for seed in range(20):
        with cases.running(ARGUMENTS.changer, "garbage", "--seed", str(seed), env=cases.environment()) as process:
            found = json.loads(tool("show", "--json", process.pid))
            assert found["unsound"] > 0
            assert "left out" in tool("show", process.pid)
    for name, said in (("none", "no such file"), ("text", "is not a policy file"), (".", "is no regular file")):
        (folder / "text").write_text("a text of mine\n")
        tool("show", folder / name, status=1, said=said)
    tool("fixed", "1s", folder / "text", status=1, said="not overwritten")
    assert (folder / "text").read_text() == "a text of mine\n"
    tool("fixed", "1s", folder / "none" / "file", status=1, said="no such file")
    tool("fixed", "1s", folder / "file")
    whole = (folder / "file").read_bytes()
    for data, said in (
        (whole[:-1], "damaged"),
        (policy.changed(whole, policy.VERSION_AT, 2), "later version"),
        (policy.changed(whole, policy.STRATEGIES_AT, 7), "other strategies"),
    ):
        (folder / "file").write_bytes(data)
        tool("show", folder / "file", status=1, said=said)
    assert sorted(p.name for p in folder.iterdir()) == ["file", "text"]


def sites_of_a_trace_are_those_of_the_program(folder):
    if not ARGUMENTS.recorded:
        print("there is no recorder")
        return
    recorder, simulator = ARGUMENTS.recorded
    live, trace, simulated = folder / "live", folder / "trace", folder / "simulated"
    steps = [ARGUMENTS.learner, "a", "24", "b", "24"]
    subprocess.run(steps, check=True, env=on_hakmem(HAKMEM_POLICY_FILE=str(live)), timeout=200)
    env = cases.environment(
        LD_PRELOAD=recorder, HAK_RECORD_FILE=str(trace), HAK_RECORD_RUN="1", HAK_RECORD_LIMIT=str(1 << 30)
    )
    command = ["sh", "-c", 'HAK_RECORD_PID=$$ LD_PRELOAD=$0 exec "$@"', env.pop("LD_PRELOAD"), *steps]
    subprocess.run(command, check=True, env=env, timeout=200)
    subprocess.run([simulator, "--json", "--save", simulated, trace], check=True, capture_output=True, timeout=200)
    found = [ratings(json.loads(tool("show", "--json", path))).keys() for path in (live, simulated)]
    assert found[0] and found[0] == found[1], found


def main():
    judged = [
        what_is_shown_is_what_is_saved,
        half_a_change_is_never_shown,
        threads_that_learn_are_shown,
        static_programs,
        a_library_of_another_name,
        a_fixed_strategy_leads_everywhere,
        who_cannot_be_shown,
        what_is_not_in_order,
        sites_of_a_trace_are_those_of_the_program,
    ]
    cases.run(*judged)


if __name__ == "__main__":
    main()
