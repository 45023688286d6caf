"""hakmem-live: a process is read as it is while it runs, and is not disturbed.

read.py TOOL LIBRARY WORKER [--linked WORKER]
Each run first shows that the judges refuse what is wrong.
"""

import fcntl
import functools
import json
import mmap
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cases

READERS = 8
NOBODY = 65534
LARGE, LARGE_COUNT, SMALL, SMALL_COUNT = 1 << 20, 32, 64, 65536

# live/live_page.h
MARK = b"hakmem live page"
LAYOUT_AT, BYTES_AT, SLOT_AT, WORDS_AT, PID_AT, VERSION_AT, SEQUENCE_AT = 16, 20, 24, 32, 40, 56, 184
PROT_BOTH = mmap.PROT_READ | mmap.PROT_WRITE
F_ADD_SEALS, F_GET_SEALS, SEAL_SHRINK, SEAL_GROW, SEAL_FUTURE_WRITE = 1033, 1034, 2, 4, 16

ARGUMENTS = cases.arguments("tool", "library", "worker", linked={})


def live(**more):
    return cases.environment(LD_PRELOAD=ARGUMENTS.library, HAKMEM_LIVE="1", **more)


def running(*words, program=None, env=None, **options):
    """The worker, when it is ready."""
    return cases.running(program or ARGUMENTS.worker, *words, env=env or live(), **options)


def tool(*words, status=0, **options):
    said = cases.tool(ARGUMENTS.tool, *words, status=status, **options)
    assert status == 0 or said == "", said
    return said


def shown(pid):
    found = json.loads(tool("--json", pid))
    judge(found)
    return found


def judge(found):
    """What holds of every snapshot."""
    assert found["layout"] == 1 and found["snapshot"] > 0 and found["resident_bytes"] > 0, found
    assert found["age_ms"] >= 0 and found["moment"]["cost_ns"] > 0
    sizes = [row["block_bytes"] for row in found["classes"]]
    assert sizes == sorted(set(sizes)), sizes
    for row in found["classes"]:
        assert row["slab_bytes"] >= row["taken_bytes"] > -1, row
    for table in ("heaps", "pools"):
        assert len({row["id"] for row in found[table]}) == len(found[table])
    assert {row["pool"] for row in found["heaps"]} <= {row["id"] for row in found["pools"]}, found
    for row in found["pools"]:
        assert row["slab_bytes"] >= row["taken_bytes"], row
    for row in found["sites"]:
        assert row["taken_count"] >= row["live_count"] and row["taken_bytes"] >= row["live_bytes"], row
    assert found["totals"]["heap_peak_bytes"] >= found["totals"]["live_bytes"] // 2


refuses = functools.partial(cases.refuses, AssertionError)


def page_fd(pid):
    for path in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if os.readlink(path).startswith("/memfd:hakmem-live"):
                return path
        except FileNotFoundError:
            pass
    return None


def page_bytes(pid):
    return Path(page_fd(pid)).read_bytes()


def judge_idle(found):
    """What the worker `idle` holds."""
    large = [row for row in found["sites"] if row["live_count"] == LARGE_COUNT]
    assert len(large) == 1 and LARGE_COUNT * LARGE <= large[0]["live_bytes"] < 1.2 * LARGE_COUNT * LARGE, found["sites"]
    assert large[0]["place"].startswith(Path(ARGUMENTS.worker).name[:20]), large
    small = [row for row in found["classes"] if row["block_bytes"] == SMALL]
    assert small and 0 <= small[0]["taken_bytes"] - SMALL * SMALL_COUNT < 1 << 20, small
    assert found["totals"]["live_bytes"] >= LARGE_COUNT * LARGE + SMALL * SMALL_COUNT


def judge_fresh(found, before):
    """The tool waits for a new snapshot, but only 300 ms. On a machine that does much it may show the last one, or the
    new one late."""
    assert found["snapshot"] > before and found["age_ms"] < 5000, "not looked at afresh"


def judge_idle_soon(process):
    """It may not come in time (judge_fresh). Where slow paths write the snapshots, a rest follows each, and is long
    where it took long."""
    cases.until(lambda: judge_idle(shown(process.pid)) is None, AssertionError)


# --- cases ---


def what_is_held_is_shown(_):
    with running("idle") as process:
        judge_idle_soon(process)
        found = shown(process.pid)
        judge_idle(found)
        assert found["pid"] == process.pid and found["command"] == Path(ARGUMENTS.worker).name[:15]
        own = [row for row in found["heaps"] if row["thread_id"] == process.pid]
        assert len(own) == 1, found["heaps"]
        cases.until(lambda: judge_fresh(shown(process.pid), found["snapshot"]) is None, AssertionError)
        text = tool(process.pid)
        assert "live" in text and "64 B" in text and Path(ARGUMENTS.worker).name[:20] in text, text
        assert max(map(len, text.splitlines())) <= 120, text
        assert str(process.pid) in tool() and process.pid in [row["pid"] for row in json.loads(tool("--json"))]
    refuses(judge_fresh, found, found["snapshot"])
    for row in found["sites"]:
        row["live_count"] += 1
    refuses(judge_idle, found)
    found["classes"][0]["taken_bytes"] = found["classes"][0]["slab_bytes"] + 1
    refuses(judge, found)


def metrics(text):
    """The samples of OpenMetrics: (name, pid) -> value. All samples of a figure stand together, below its TYPE."""
    found, family = {}, None
    assert text.endswith("# EOF\n"), text[-200:]
    for line in text.splitlines()[:-1]:
        if line.startswith("# TYPE "):
            family = line.split()[2]
        elif not line.startswith("# "):
            name, pid, value = re.fullmatch(r'(\w+)\{pid="(\d+)",command="[^"]+"\} (\d+)', line).groups()
            assert name in (family, f"{family}_total"), line
            assert (name, int(pid)) not in found, line
            found[name, int(pid)] = int(value)
    return found


def figures_are_metrics(_):
    with running("idle") as one, running("idle") as other:
        # The tool waits for 0.3 s for a fresh snapshot; without a processor the process takes longer.
        totals = cases.until(lambda: (found := shown(one.pid)["totals"])["live_bytes"] and found)
        of_one, of_all = metrics(tool("--openmetrics", one.pid)), metrics(tool("--openmetrics"))
        assert {pid for _, pid in of_one} == {one.pid} and {one.pid, other.pid} <= {pid for _, pid in of_all}
        assert of_one["hakmem_live_bytes", one.pid] == totals["live_bytes"] > 0, totals
        assert of_one["hakmem_refills_total", one.pid] >= totals["refills"] > 0, totals
        assert of_all["hakmem_rss_bytes", other.pid] > 0
        twice = tool("--openmetrics", one.pid).replace("# EOF\n", f'hakmem_x{{pid="{one.pid}",command="x"}} 1\n# EOF\n')
        refuses(metrics, twice)
        after = metrics(tool(one.pid, "--openmetrics"))
        assert after.keys() == of_one.keys(), after


def an_idle_process_does_nothing(_):
    """When nobody looks, no snapshot is written; when somebody does, one is."""
    with running("idle") as process:
        def sequence_now():
            return struct.unpack_from("<Q", page_bytes(process.pid), SEQUENCE_AT)[0]

        def is_quiet():
            """Whoever lists all processes of the machine looks at this one, too: another test, for example."""
            before = sequence_now()
            time.sleep(1.5)
            return sequence_now() == before

        cases.until(is_quiet, ())
        sequence = sequence_now()

        def is_written_for(_):
            return sequence_now() > sequence

        cases.until(lambda: is_written_for(tool(process.pid)), AssertionError)


def readers_together(_):
    numbers, faults = [], []

    def read(pid, seed):
        draw, until = random.Random(seed), time.monotonic() + 1
        last, give_up = 0, until + cases.PATIENCE_S
        while time.monotonic() < until or (len(set(numbers)) <= 2 and time.monotonic() < give_up):
            try:
                if draw.random() < 0.2:  # a reader may be killed at any time
                    reader = subprocess.Popen([ARGUMENTS.tool, str(pid)], stdout=subprocess.DEVNULL)
                    time.sleep(draw.random() * 0.004)
                    reader.kill()
                    reader.wait()
                found = shown(pid)
                assert found["snapshot"] >= last, "time goes back"
                last = found["snapshot"]
                numbers.append(last)
            except (AssertionError, ValueError) as fault:
                faults.append(fault)
                return

    with running("threads", 4) as process:
        threads = [threading.Thread(target=read, args=(process.pid, seed)) for seed in range(READERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not faults, faults
    assert len(set(numbers)) > 2, numbers


def nobody_else_writes(_):
    with running("idle") as process:
        path = page_fd(process.pid)
        assert path.stat().st_mode & 0o777 == 0o600 and path.stat().st_uid == os.getuid(), path.stat()
        with path.open("rb+", buffering=0) as page:
            seals = fcntl.fcntl(page, F_GET_SEALS)
            for bytes_wanted in (0, 1, 1 << 20):
                cases.refuses(PermissionError, page.truncate, bytes_wanted)
            if seals & SEAL_FUTURE_WRITE:
                cases.refuses(PermissionError, page.write, b"x")
                cases.refuses(PermissionError, mmap.mmap, page.fileno(), 0, mmap.MAP_SHARED, PROT_BOTH)
            else:
                print("this kernel cannot seal writing")
        judge_idle_soon(process)


def a_stopped_process_is_shown(_):
    with running("threads", 2) as process:
        time.sleep(0.2)
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.05)
        try:
            for _ in range(3):
                shown(process.pid)
        finally:
            process.send_signal(signal.SIGCONT)


def who_cannot_be_shown(_):
    tool("999999999", status=2, said="there is no process 999999999")
    tool("9" * 30, status=2, said="there is no process 9999")
    tool("0", status=2, said="there is no process 0")
    tool("x1", status=2, said="'x1' is no process id")
    tool("1", "2", status=2, said="one argument too many: '2'")
    tool("--nonsense", status=2, said="unknown option '--nonsense'")
    tool("--json", "--openmetrics", status=2, said="--json and --openmetrics exclude each other")
    where_proc_is_missing()
    with running("idle", env=cases.environment(LD_PRELOAD=ARGUMENTS.library)) as process:
        tool(process.pid, status=2, said="keeps no live page")
        assert page_fd(process.pid) is None
    with running("idle", env=cases.environment()) as process:
        tool(process.pid, status=2, said="keeps no live page")
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        tool(process.pid, status=1, said=f"process {process.pid} has ended")
    if os.getuid() == 0:
        nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        with running("idle") as process:
            try:
                tool(process.pid, status=2, said="not permitted to look at", **nobody)
                assert str(process.pid) not in tool(**nobody)
            except PermissionError:
                print("another user cannot run the tool here")


def where_proc_is_missing():
    """In a chroot, for example, no process is seen, and none is said to be missing."""
    for words in ("", "1", "--json"):
        script = f"umount -l /proc || exit 77; exec {ARGUMENTS.tool} {words}"
        done = subprocess.run(["unshare", "-m", "sh", "-c", script], check=False, capture_output=True, timeout=200)
        if done.returncode in (1, 77):
            print("no mount can be taken away here")
            return
        assert done.returncode == 2 and done.stdout == b"" and b"/proc is not mounted" in done.stderr, (words, done)


def output_that_cannot_be_written(_):
    def without_stdout():
        os.close(1)

    with running("idle") as process, Path("/dev/full").open("w") as full:
        for words in ((), (process.pid,), ("--json", process.pid), ("--openmetrics",)):
            command = [ARGUMENTS.tool, *map(str, words)]
            for how, said in (({"stdout": full}, b"No space left"), ({"preexec_fn": without_stdout}, b"stdout: ")):
                done = subprocess.run(command, check=False, stderr=subprocess.PIPE, timeout=200, **how)
                assert done.returncode == 1 and said in done.stderr and done.stderr.count(b"\n") == 1, (words, done)


def a_killed_process_leaves_nothing(_):
    places = [Path(path) for path in ("/dev/shm", os.environ.get("XDG_RUNTIME_DIR", "/dev/shm")) if Path(path).is_dir()]
    with running("idle", killed=True) as process:
        shown(process.pid)
        process.kill()
        process.wait()
        tool(process.pid, status=2, said="there is no process")
        assert not any("hakmem" in name.name for path in places for name in path.iterdir()), places


def children_have_pages_of_their_own(_):
    with running("fork") as process:
        judge_idle_soon(process)
        child, parent = int(process.said[1]), shown(process.pid)

        own_bytes = parent["totals"]["live_bytes"] + 99 * LARGE
        cases.until(lambda: shown(child)["totals"]["live_bytes"] >= own_bytes, AssertionError)
        assert shown(child)["pid"] == child
        assert os.stat(page_fd(process.pid)).st_ino != os.stat(page_fd(child)).st_ino
    with running("forkquiet") as process:
        judge_idle_soon(process)
        tool(process.said[1], status=2, said="keeps no live page")
    # Where hakmem's thread was there before, such a child is noticed, and gets a page.
    with running("rawfork", env=live(HAKMEM_BACKGROUND="off")) as process:
        judge_idle_soon(process)
        tool(process.said[1], status=2, said="was forked from one with a live page")


def another_program_has_none(_):
    with running("exec") as process:
        tool(process.pid, status=2, said="keeps no live page")


def a_closed_descriptor(_):
    with running("close", env=live(HAKMEM_BACKGROUND="off")) as process:
        judge_idle_soon(process)  # another page was made


def raised_privileges(folder):
    if os.getuid() != 0 or not ARGUMENTS.linked:
        print("no root, or no linked program: not tried")
        return
    copy = folder / "worker"
    shutil.copy(ARGUMENTS.linked, copy)
    folder.chmod(0o755)
    options = {"program": str(copy), "env": cases.environment(HAKMEM_LIVE="1"), "user": NOBODY, "group": NOBODY}
    copy.chmod(0o755)
    try:
        with running("idle", **options) as process:
            judge_sane = json.loads(tool("--json", process.pid))
            assert judge_sane["totals"]["live_bytes"] > LARGE_COUNT * LARGE
    except PermissionError:
        print("another user cannot run programs here")
        return
    copy.chmod(0o4755)
    with running("idle", **options) as process:
        if "NoNewPrivs:\t1" in Path(f"/proc/{process.pid}/status").read_text():
            print("set-uid has no effect here")
            return
        tool(process.pid, status=2, said="keeps no live page")


def a_user_of_many_groups(_):
    """The groups are a long line of /proc/PID/status, before the one of the process's id in its own namespace."""
    if os.getuid() != 0 or not shutil.which("unshare"):
        print("no root, or no unshare: not tried")
        return
    groups = list(range(10**9, 10**9 + 2000))
    words = ["--pid", "--fork", "--kill-child", ARGUMENTS.worker, "idle"]
    with running(*words, program="unshare", extra_groups=groups) as process:
        child = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        shown(int(child))


@contextmanager
def offered(data, seals=SEAL_SHRINK | SEAL_GROW):
    """This process offers a page with these bytes."""
    fd = os.memfd_create("hakmem-live", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    fcntl.fcntl(fd, F_ADD_SEALS, seals)
    try:
        yield os.getpid()
    finally:
        os.close(fd)


def changed(data, at, form, value):
    data = bytearray(data)
    struct.pack_into(form, data, at, value)
    return bytes(data)


def offered_of_huge_pages():
    """Reading it would end the reader, where there are no huge pages. None: the kernel has no such files."""
    try:
        fd = os.memfd_create("hakmem-live", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | os.MFD_HUGETLB)
        os.ftruncate(fd, 2 << 20)
        fcntl.fcntl(fd, F_ADD_SEALS, SEAL_SHRINK)
        return fd
    except OSError:
        return None


def a_small_process_that_sleeps_is_shown(_):
    """It allocated a little in its first moments, and nothing since."""
    environment = {"LD_PRELOAD": ARGUMENTS.library, "HAKMEM_LIVE": "1", "PATH": os.environ["PATH"]}
    with subprocess.Popen(["sh", "-c", "read x"], env=environment, stdin=subprocess.PIPE) as process:
        time.sleep(1)
        found = cases.until(lambda: json.loads(tool("--json", process.pid)), AssertionError)  # it may begin late
        process.stdin.close()
        process.wait(cases.PATIENCE_S)
    assert found["totals"]["heap_bytes"] > 0, found["totals"]


def what_is_not_in_order(_):
    with running("idle") as process:
        judge_idle_soon(process)
        page = page_bytes(process.pid)
    page = changed(page, PID_AT, "<Q", os.getpid())
    with offered(page) as pid:  # the others are changes of this one, which is right
        found = json.loads(tool("--json", pid))
        for row in found["sites"]:
            row["place"] = Path(ARGUMENTS.worker).name  # these addresses are other places here
        judge_idle(found)
    version = page.index(b"hakmem 0.")
    with offered(page[:version] + b"\x1b[2J\x9b" + page[version + 5 :]) as pid:
        shown_raw = subprocess.run([ARGUMENTS.tool, str(pid)], check=True, capture_output=True, timeout=200).stdout
        assert b"?[2J?" in shown_raw and b"\x1b" not in shown_raw and b"\x9b" not in shown_raw, shown_raw
    huge = offered_of_huge_pages()
    if huge is not None:
        tool(os.getpid(), status=2, said="of huge pages")
        os.close(huge)
    sequence = struct.unpack_from("<Q", page, SEQUENCE_AT)[0]
    slot = struct.unpack_from("<2I", page, SLOT_AT)[sequence // 2 % 2]
    cases = {
        "not sealed": (page, 0),
        "is none": (b"x" * len(page), SEAL_SHRINK),
        "too short": (page[:100], SEAL_SHRINK),
        "no sensible length": (b"", SEAL_SHRINK),
        "has layout 7": (changed(page, LAYOUT_AT, "<I", 7), SEAL_SHRINK),
        "is damaged": (page[:-4096], SEAL_SHRINK),
        "has not written": (changed(page, SEQUENCE_AT, "<Q", 1), SEAL_SHRINK),
        "was forked": (changed(page, PID_AT, "<Q", 1), SEAL_SHRINK),
    }
    for said, (data, seals) in cases.items():
        with offered(data, seals) as pid:
            tool(pid, status=2, said=said)
    for at in (slot, slot + 8, slot + 16, slot + 100 * 8):
        with offered(changed(page, at, "<Q", 12345)) as pid:
            tool(pid, status=2, said="is damaged")
    draw = random.Random(1)
    refused = 0
    for _ in range(150):
        data = bytearray(page)
        for _ in range(draw.choice((1, 2, 20))):
            data[draw.randrange(16, 1200)] = draw.randrange(256)
        struct.pack_into("<Q", data, PID_AT, os.getpid())
        with offered(bytes(data)) as pid:
            result = subprocess.run([ARGUMENTS.tool, "--json", str(pid)], check=False, capture_output=True, timeout=200)
        assert result.returncode in (0, 2), result
        if result.returncode:
            assert result.stderr.count(b"\n") == 1, result
        refused += result.returncode == 2
    assert 0 < refused, refused


cases.run(
    what_is_held_is_shown, figures_are_metrics, an_idle_process_does_nothing, readers_together, nobody_else_writes,
    a_stopped_process_is_shown, who_cannot_be_shown, output_that_cannot_be_written, a_killed_process_leaves_nothing,
    children_have_pages_of_their_own, another_program_has_none, a_closed_descriptor, raised_privileges,
    a_user_of_many_groups, a_small_process_that_sleeps_is_shown, what_is_not_in_order
)  # fmt: skip
