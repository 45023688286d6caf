"""hakmem-policy show: what a running program has learned is printed as it is.

show.py TOOL LIBRARY LEARNER [--recorded RECORDER SIMULATOR]
Each run first shows that the judges refuse what is wrong.
"""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import layout as policy

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cases

STRATEGIES = ("at_once", "10ms", "100ms", "1s", "10s", "warm")
ARGUMENTS = cases.arguments("tool", "library", "learner", recorded={"nargs": 2})


def on_hakmem(mode="evolving", **more):
    fixed = {"LD_PRELOAD": ARGUMENTS.library, "HAKMEM_POLICY": mode, "HAKMEM_PURGE_DELAY_MS": "50", "HAKMEM_LIVE": "1"}
    return cases.environment(**fixed | more)


def learner(*steps, mode="evolving", **more):
    """The program, when it has learned and waits."""
    return cases.running(ARGUMENTS.learner, *steps, "wait", env=on_hakmem(mode, **more))


def tool(*words, **options):
    return cases.tool(ARGUMENTS.tool, *words, **options)


def shown(pid):
    found = json.loads(tool("show", "--json", pid))
    judge(found)
    return found


def judge(found):
    """What holds of everything that is shown."""
    totals = found["totals"]
    for arm in found["arms"] + found["priors"]:
        assert all(-400 <= arm["ratings"][name] <= 400 for name in STRATEGIES), arm
        assert arm["leader"] in STRATEGIES and arm["switches"] <= arm["matches"], arm
    assert totals["arms"] == sum(arm["kind"] != "rest" for arm in found["arms"]), totals
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


def what_is_shown_is_what_is_saved(folder):
    path = folder / "file"
    with learner("a", "24", "b", "24", HAKMEM_POLICY_FILE=str(path)) as process:
        found = shown(process.pid)
        table = tool("show", process.pid)
    content = policy.read(path.read_bytes())
    tool("fixed", "1s", path, status=1, said="holds what a program learned, so it is not overwritten")
    judge_same(ratings(json.loads(tool("show", "--json", path))), content)
    # The end of a program concludes matches that were open; who only reads the file has what is in it.
    assert ratings(found).keys() == ratings(json.loads(tool("show", "--json", path))).keys()
    with learner("a", "24", mode="frozen", HAKMEM_POLICY_FILE=str(path)) as process:
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
    refuses(judge, found | {"totals": found["totals"] | {"acted": found["totals"]["acted"] + 1}})


def a_fixed_strategy_leads_everywhere(folder):
    path = folder / "file"
    for name in STRATEGIES:
        tool("fixed", name, path)
        with learner("a", "24", mode="frozen", HAKMEM_POLICY_FILE=str(path)) as process:
            found = shown(process.pid)
            assert len(found["priors"]) == 32 and {prior["leader"] for prior in found["priors"]} == {name}, name
            assert all(arm["kind"] == "rest" for arm in found["arms"]), found["arms"]
            assert "no site has ratings of its own" in tool("show", process.pid)
    tool("fixed", "2s", path, status=2, said="unknown strategy '2s'")


def who_cannot_be_shown(_):
    with learner("a", "24", HAKMEM_LIVE="0") as process:
        tool("show", process.pid, status=2, said="HAKMEM_LIVE=1 is not in its environment")
    with learner("a", "24", mode="off") as process:
        tool("show", process.pid, status=2, said="has learned nothing: HAKMEM_POLICY is off")
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        tool("show", process.pid, status=1, said=f"process {process.pid} has ended")
    tool("show", process.pid, status=2, said=f"there is no process {process.pid}")
    tool("show", "0", status=2, said="there is no process 0")
    tool("show", "9" * 30, status=2, said="there is no process 9999")
    tool("show", status=2, said="takes show PID")
    tool("show", "1", "2", status=2, said="takes show PID")
    tool("--nonsense", status=2, said="unknown option '--nonsense'")


def what_is_not_in_order(folder):
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


cases.run(
    what_is_shown_is_what_is_saved, a_fixed_strategy_leads_everywhere, who_cannot_be_shown, what_is_not_in_order,
    sites_of_a_trace_are_those_of_the_program
)  # fmt: skip
