"""hakmem-profile: a heap profile of a process is started, written and stopped from outside; nothing of that harms it.

commands.py TOOL READER LIBRARY WORKER
Each run first shows that the judges refuse what is wrong.
"""

import fcntl
import functools
import mmap
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import time
import zlib
from contextlib import contextmanager, suppress
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / folder) for folder in (".", "profile")]
import cases
import message
from cases import until

TOOL, READER, LIBRARY, WORKER = sys.argv[1:]
NOBODY = {"user": 65534, "group": 65534, "extra_groups": []}
KIB = 1 << 10
ALLOCATED = message.FIGURES.index("alloc_space")

# live/control_page.h
LAYOUT_AT, ANSWER_AT, STAGE_AT, VERB_AT, INTERVAL_AT, END_AT = 16, 20, 24, 32, 40, 64
FREE, ASKED, TAKEN = 0, 1, 2
START, DUMP = 1, 2


def live(**more):
    return cases.environment(LD_PRELOAD=LIBRARY, HAKMEM_LIVE="1", **more)


def running(*words, env=None, **options):
    """The worker, when it is ready."""
    return cases.running(WORKER, *words, env=env or live(), **options)


def ask(*words, status=0, said="", cwd="/", **options):
    result = subprocess.run([TOOL, *map(str, words)], check=False, capture_output=True, timeout=200, cwd=cwd, **options)
    complaint = result.stderr.decode()
    assert result.returncode == status, f"{words}: status {result.returncode}, {complaint}"
    if status == 0:
        assert complaint == "" and said in result.stdout.decode(errors="replace"), (words, result)
    else:
        assert complaint.count("\n") == 1 and said in complaint, f"{words}: '{complaint}', not '{said}'"
        assert result.stdout == b"", result
    return result.stdout


def profile_of(pid):
    return message.read_bytes(ask("dump", "--out", "-", pid))


def sampled(pid):
    profile = profile_of(pid)
    return profile if allocated(profile) else None


def stop(process):
    process.send_signal(signal.SIGSTOP)
    until(lambda: ") T " in Path(f"/proc/{process.pid}/stat").read_text())


def allocated(profile):
    return sum(figures[ALLOCATED] for figures in profile.stacks().values())


@contextmanager
def page_of(pid):
    """The process's page for commands, and its descriptor."""
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # the program closes files, too
            if os.readlink(path) == "/memfd:hakmem-control (deleted)":
                break
    else:
        raise AssertionError(f"process {pid} has no page for commands")
    fd = os.open(path, os.O_RDWR)
    try:
        with mmap.mmap(fd, mmap.PAGESIZE) as page:
            yield page, fd
    finally:
        os.close(fd)


def put(page, at, value):
    struct.pack_into("<Q", page, at, value)


def get(page, at):
    return struct.unpack_from("<Q", page, at)[0]


def wake(pid):
    """As whoever looks at the process does."""
    subprocess.run([READER, str(pid)], check=True, capture_output=True, timeout=200)


def heard(pid, page):
    """The process has answered what stands in the page."""
    until(lambda: get(page, STAGE_AT) % 4 != ASKED or wake(pid))
    assert get(page, STAGE_AT) % 4 == FREE, "the process does not answer"


def judge(profile, interval):
    """Of the worker, with a sample each so many bytes."""
    assert profile.text(profile.mappings[1]["file"]) == os.path.realpath(WORKER), profile.mappings
    assert profile.single["period"] == interval, profile.single
    inside, addresses = profile.mappings[1], [a for stack in profile.stacks() for a in stack if isinstance(a, int)]
    assert any(inside["start"] <= address < inside["limit"] for address in addresses), addresses


refuses = functools.partial(cases.refuses, (AssertionError, EOFError, OSError, zlib.error))


def grown(pid, early):
    profile = profile_of(pid)
    return profile if allocated(profile) > allocated(early) else None


def at_rest(pid):
    profile = profile_of(pid)
    time.sleep(0.05)
    return profile if allocated(profile_of(pid)) == allocated(profile) else None


# --- cases ---


def a_profile_from_outside(folder):
    with running("threads", 4) as process:
        ask("dump", process.pid, status=2, said="no profile was ever started", cwd=folder)
        ask("stop", process.pid, status=2, said="has no profile that runs")
        assert not list(folder.iterdir()), "nothing was written, and yet there is a file"
        ask("start", "--kb", 16, process.pid, said="16 KiB")
        ask("start", process.pid, status=2, said="runs already")
        early = until(lambda: sampled(process.pid))
        ask("dump", process.pid, cwd=folder)
        ask("dump", process.pid, cwd=folder)
        late = until(lambda: grown(process.pid, early))
        ask("stop", process.pid)
        stopped = until(lambda: at_rest(process.pid))
        ask("start", "--kb=0", process.pid, said="every allocation")
        every = until(lambda: sampled(process.pid))
    names = [f"{Path(WORKER).name[:15]}.{process.pid}{ending}.pb.gz" for ending in ("", "-2")]
    assert sorted(path.name for path in folder.iterdir()) == sorted(names), list(folder.iterdir())
    files = [message.read(folder / name) for name in names]
    for profile in (early, late, stopped, *files):
        judge(profile, 16 * KIB)
    judge(every, 1)
    sums = [allocated(profile) for profile in (early, *files, late, stopped)]
    assert sums == sorted(sums), sums
    refuses(judge, early, 32 * KIB)
    refuses(message.read_bytes, (folder / names[0]).read_bytes()[:-1])


def files_that_cannot_be_written(folder):
    with running("threads", 1, env=live(HAKMEM_HEAP_PROFILE="on")) as process:
        ask("start", process.pid, status=2, said="runs already")
        there = folder / "there"
        there.write_text("kept")
        ask("dump", "--out", there, process.pid, status=2, said="is not overwritten")
        assert there.read_text() == "kept"
        ask("dump", "--out", folder / "none" / "x", process.pid, status=2, said="No such file")
        until(lambda: sampled(process.pid))
        ask("dump", "--out", folder / "heap", process.pid, said="heap: ")
        judge(message.read(folder / "heap"), 512 * KIB)
        with page_of(process.pid) as (page, _):
            stop(process)
            tool = subprocess.Popen([TOOL, "dump", "--wait", "150", "--out", folder / "early", str(process.pid)])
            until(lambda: get(page, STAGE_AT) % 4 == ASKED)
            assert not (folder / "early").exists(), "a file without a profile"
            tool.send_signal(signal.SIGINT)
            assert tool.wait(20) == -signal.SIGINT
            process.send_signal(signal.SIGCONT)
        with Path("/dev/full").open("w") as full:
            command = [TOOL, "dump", "--out", "-", str(process.pid)]
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
        assert (done.returncode, done.stderr) == (2, b"hakmem-profile: stdout: No space left on device\n"), done
        with page_of(process.pid) as (page, fd):
            ask("dump", "--out", folder / "more", process.pid)
            assert os.fstat(fd).st_blocks * 512 == mmap.PAGESIZE, "the process keeps what was fetched"
            put(page, VERB_AT, DUMP)
            put(page, STAGE_AT, get(page, STAGE_AT) + 4 + ASKED)
            heard(process.pid, page)
            assert os.fstat(fd).st_blocks * 512 > mmap.PAGESIZE, "it wrote nothing"
            ask("start", process.pid, status=2, said="runs already")
            assert os.fstat(fd).st_blocks * 512 == mmap.PAGESIZE, "the process keeps what nobody fetched"
        limits = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (mmap.PAGESIZE + 100, limits[1]))
        ask("dump", "--out", folder / "less", process.pid, status=2, said="cannot write the answer")
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, limits)
        assert sorted(path.name for path in folder.iterdir()) == ["heap", "more", "there"]
        judge(until(lambda: sampled(process.pid)), 512 * KIB)


def wrong_words(_):
    for words, said in (
        ((), "takes start, dump or stop"),
        (("begin", 1), "takes start, dump or stop"),
        (("start",), "takes a PID"),
        (("start", "x1"), "'x1' is no process id"),
        (("stop", "9" * 30), "there is no process 9999"),
        (("start", 1, 2), "one argument too many: '2'"),
        (("start", "--kb", 1), "takes a PID"),
        (("start", "--kb"), "--kb needs a value"),
        (("start", "--kb", -1, 1), "--kb takes 0 to"),
        (("start", "--kb=9999999", 1), "--kb takes 0 to"),
        (("stop", "--kb", 5, 1), "unknown option '--kb'"),
        (("stop", "--nonsense", 1), "unknown option '--nonsense'"),
        (("dump", "--out=", 1), "--out takes the name"),
        (("stop", 999999999), "there is no process 999999999"),
    ):
        ask(*words, status=2, said=said)
    assert b"start" in ask("--help")


def who_takes_no_commands(folder):
    own = {name: value for name, value in live().items() if name != "HAKMEM_LIVE"}
    with running("idle", env=own) as process:
        ask("start", process.pid, status=2, said="HAKMEM_LIVE=1 is not in its environment")
    with running("idle", env=live(HAKMEM_BACKGROUND="off")) as process:
        ask("start", "--wait", 0, process.pid, status=2, said="did not react")
        with page_of(process.pid) as (page, _):
            assert get(page, STAGE_AT) % 4 == FREE, "the command is still there"
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        ask("start", process.pid, status=1, said=f"process {process.pid} has ended")
    if os.getuid() != 0:
        return
    with running("threads", 1) as process:
        try:
            ask("start", process.pid, status=2, said="not permitted", **NOBODY)
        except PermissionError:
            print("another user cannot run the tool here")
            return
        ask("dump", process.pid, status=2, said="no profile was ever started", cwd=folder)
    try:
        with running("threads", 1, **NOBODY) as process:
            ask("start", process.pid)
            ask("dump", "--out", folder / "heap", process.pid)
    except PermissionError:
        print("another user cannot run programs here")
        return
    assert (folder / "heap").stat().st_uid == 0, "the tool writes, not the process"


def a_process_that_ends_meanwhile(_):
    """Whenever it ends: that is said of it, and at once."""
    random.seed(1)
    for _ in range(60):
        with running("threads", 2, killed=True) as process:
            words = [TOOL, "start", "--wait", "100", str(process.pid)]
            asking = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            time.sleep(random.uniform(0, 0.004))
            process.kill()
            said = asking.communicate(timeout=50)
        assert said[1].endswith((b" has ended\n", b"there is no process %d\n" % process.pid)) or said[0], said


def a_stopped_process(_):
    with running("threads", 1) as process:
        ask("stop", process.pid, status=2, said="no profile that runs")  # its thread is there
        stop(process)
        ask("start", "--wait", 1, process.pid, status=2, said="is stopped, and nothing was done")
        process.send_signal(signal.SIGCONT)
        ask("dump", process.pid, status=2, said="no profile was ever started")


def a_tool_that_dies(_):
    with running("threads", 1) as process, page_of(process.pid) as (page, _):
        ask("stop", process.pid, status=2, said="no profile that runs")
        stop(process)
        with subprocess.Popen([TOOL, "start", "--wait", "50", str(process.pid)]) as dies:
            until(lambda: get(page, STAGE_AT) % 4 == ASKED)
            dies.kill()
        process.send_signal(signal.SIGCONT)
        for words in (("stop", process.pid), ("start", process.pid)):  # it may have been heard
            subprocess.run([TOOL, *map(str, words)], check=False, capture_output=True, timeout=200)
        judge(until(lambda: sampled(process.pid)), 512 * KIB)
        ask("stop", process.pid)


def tools_together(_):
    draw = random.Random(1)
    with running("threads", 2) as process:
        ask("start", process.pid)
        until(lambda: sampled(process.pid))
        tools = [
            subprocess.Popen([TOOL, "dump", "--wait", "150", "--out", "-", str(process.pid)], stdout=subprocess.PIPE)
            for _ in range(12)
        ]
        killed = tools[8:]
        for tool in killed:
            time.sleep(draw.random() * 0.004)
            tool.kill()
        for tool in tools:
            said, _ = tool.communicate(timeout=200)
            assert tool.returncode == 0 or tool in killed, tool.returncode
            if tool.returncode == 0:
                judge(message.read_bytes(said), 512 * KIB)
        with page_of(process.pid) as (_, fd):  # somebody who asks, and asks
            fcntl.flock(fd, fcntl.LOCK_EX)
            ask("dump", "--wait", 0, "--out", "-", process.pid, status=2, said="somebody else asks")
            fcntl.flock(fd, fcntl.LOCK_UN)
        ask("stop", process.pid)


def garbage(_):
    draw = random.Random(2)
    with running("threads", 2) as process, page_of(process.pid) as (page, fd):
        ask("stop", process.pid, status=2, said="no profile that runs")
        for length in (0, 1, mmap.PAGESIZE - 1):
            refuses(os.ftruncate, fd, length)
        head = page[:STAGE_AT]
        for verb, interval in ((0, 1), (99, 1), (1 << 63, 1), (START, 0), (START, 1 << 63), (START, (1 << 64) - 1)):
            put(page, VERB_AT, verb)
            put(page, INTERVAL_AT, interval)
            put(page, STAGE_AT, get(page, STAGE_AT) // 4 * 4 + 4 + ASKED)
            heard(process.pid, page)
        ask("dump", process.pid, status=2, said="no profile was ever started")
        for stage in (TAKEN, 3, (1 << 64) - 2, (1 << 64) - 1, (1 << 64) - 4, ASKED):
            put(page, STAGE_AT, stage)
            ask("stop", process.pid, status=2, said="no profile that runs")
        for _ in range(300):
            page[STAGE_AT:END_AT] = draw.randbytes(END_AT - STAGE_AT)
            put(page, VERB_AT, draw.choice((0, START, DUMP, 3, 4)))
            if draw.random() < 0.1:
                wake(process.pid)
        for at, said in ((0, "is damaged"), (LAYOUT_AT, "another version")):
            page[at] ^= 0xFF
            ask("stop", process.pid, status=2, said=said)
            page[:STAGE_AT] = head
        subprocess.run([TOOL, "stop", str(process.pid)], check=False, capture_output=True, timeout=200)
        ask("start", process.pid)
        judge(until(lambda: sampled(process.pid)), 512 * KIB)
        os.truncate(fd, mmap.PAGESIZE * 2)  # which harms nobody
        struct.pack_into("<I", page, ANSWER_AT, mmap.PAGESIZE * 2)
        ask("dump", "--out", "-", process.pid, status=2, said="is shorter than it says")
        page[:STAGE_AT] = head
        judge(until(lambda: sampled(process.pid)), 512 * KIB)


def children_have_their_own(_):
    with running("fork") as process:
        child = int(process.said[1])
        ask("dump", child, status=2, said="no profile was ever started")
        ask("start", process.pid)
        ask("stop", child, status=2, said="no profile that runs")
        ask("stop", process.pid)


cases.run(
    a_profile_from_outside, files_that_cannot_be_written, wrong_words, who_takes_no_commands,
    a_process_that_ends_meanwhile, a_stopped_process, a_tool_that_dies, tools_together, garbage,
    children_have_their_own
)  # fmt: skip
