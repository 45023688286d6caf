"""The policy file of real programs: file.py LEARNER LIBRARY

What is learned is there in the next run, and its sites are the same at other addresses. Whatever lies in the file's place,
the program runs on with one line on stderr at most, and nothing that is not ours is written over.
Each run first shows that the judges refuse what is wrong.
"""

import fcntl
import functools
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import layout as policy

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cases

LEARNER, LIBRARY = sys.argv[1:3]
LEARNS = ("a", "24")
OTHER = ("b", "24")
DAMAGED, NEWER, STRATEGIES, FOREIGN = "damaged", "later version", "other strategies", "not a policy file"
KEPT = "what was learned is not kept"
LOCK_WAIT_S = 2  # so long a process that merges waits for the folder's lock (inspect/file.h)
TRIES = 10


def environment(path, mode="evolving", **more):
    policy_options = {"HAKMEM_POLICY": mode, "HAKMEM_POLICY_FILE": str(path), "HAKMEM_PURGE_DELAY_MS": "50"}
    return cases.environment(LD_PRELOAD=LIBRARY, **(policy_options | more))


def run(path, *steps, mode="evolving", status=0, said=(), **options):
    """Runs the learner; `said` are words of the lines that it must say, one each. Gives its stdout."""
    words = {"env": environment(path, mode), "capture_output": True, "text": True, "timeout": cases.PATIENCE_S}
    result = subprocess.run([LEARNER, *steps], check=False, **words, **options)
    judge_lines(result.stderr, said)
    assert result.returncode == status, f"{steps}: status {result.returncode}"
    return result.stdout


def judge_lines(stderr, said):
    lines = stderr.splitlines()
    assert len(lines) == len(said), f"said {lines}, not {said}"
    for line, words in zip(lines, said, strict=True):
        assert line.startswith("hakmem: ") and words in line, f"said '{line}', not '{words}'"


def judge_alone(path):
    """Nothing was left beside the file."""
    names = sorted(p.name for p in path.parent.iterdir())
    assert names == [path.name], names


refuses = functools.partial(cases.refuses, (AssertionError, ValueError))


def controls(folder):
    path = folder / "f"
    run(path, *LEARNS)
    data = path.read_bytes()
    policy.read(data)
    for length in range(0, len(data), 7):
        refuses(policy.read, data[:length])
        refuses(policy.read, data[:length] + bytes([data[length] ^ 1]) + data[length + 1 :])
    refuses(judge_lines, "hakmem: it is damaged\nhakmem: it is damaged\n", (DAMAGED,))
    refuses(judge_lines, "", (DAMAGED,))
    refuses(judge_lines, "it is damaged\n", (DAMAGED,))
    (folder / "g").touch()
    refuses(judge_alone, path)


def what_is_learned_is_there_again(folder):
    path = folder / "f"
    run(path, *LEARNS)
    first = policy.read(path.read_bytes())
    assert first.sites() and first.modules, first
    learned = {key: ratings for key, ratings in first.ratings.items() if key[0] == policy.SITE}
    assert any(any(ratings) for ratings in learned.values()), "all ratings are 0"
    assert {site >> policy.TAG_SHIFT for site in first.sites()} >= first.modules.keys()
    run(path, *OTHER)
    second = policy.read(path.read_bytes())
    large = {key: ratings for key, ratings in learned.items() if key[1] >> policy.TAG_SHIFT != (1 << 24) - 1}
    assert large and large.items() <= second.ratings.items(), "what the first run learned is not in the second's file"
    assert len(second.ratings) > len(first.ratings), "the second run learned nothing"
    env = environment(path, "frozen", HAKMEM_STATS="json")
    report = subprocess.run([LEARNER], check=True, env=env, capture_output=True, text=True, timeout=200).stderr
    arms = sum(kind == policy.SITE for kind, _, _ in second.ratings)
    assert f'"policy_arms":{arms},' in report, f"not {arms} arms: {report}"
    judge_alone(path)


def sites_are_the_same_at_other_addresses(folder):
    sites, addresses = [], []
    for name in ("f", "g"):
        addresses.append(run(folder / name, "address", *LEARNS, *OTHER))
        sites.append(policy.read((folder / name).read_bytes()).sites())
    if addresses[0] == addresses[1]:
        print("addresses are not random here")
    assert sites[0] == sites[1], sites


def frozen_reads_only(folder):
    path = folder / "f"
    run(path, *LEARNS, mode="frozen", said=["no such file"])
    assert not path.exists()
    run(path, *LEARNS)
    before, data = path.stat(), path.read_bytes()
    run(path, *LEARNS, *OTHER, mode="frozen")
    path.write_bytes(data[:-1])
    run(path, *LEARNS, mode="frozen", said=[DAMAGED])
    assert path.read_bytes() == data[:-1] and path.stat().st_ino == before.st_ino
    run(path, *LEARNS, mode="off")
    assert path.read_bytes() == data[:-1] and path.stat().st_ino == before.st_ino
    judge_alone(path)


def what_is_wrong_is_said_and_mended(folder):
    path = folder / "f"
    run(path, *LEARNS)
    whole = path.read_bytes()
    middle = len(whole) // 2
    wrong = [
        (whole[:middle] + bytes([whole[middle] ^ 0x10]) + whole[middle + 1 :], DAMAGED),
        (whole[:middle], DAMAGED),
        (whole[:5], DAMAGED),
        (whole + b"x", DAMAGED),
        (whole + bytes(2 << 20), DAMAGED),
    ]
    for data, words in wrong:
        path.write_bytes(data)
        path.chmod(0o640)
        run(path, *LEARNS, "exit", "7", status=7, said=[words])
        policy.read(path.read_bytes())
        assert path.stat().st_mode & 0o7777 == 0o640
    path.write_bytes(b"")
    run(path, *LEARNS)
    policy.read(path.read_bytes())
    judge_alone(path)
    # Whole, and of use to another version: it stays.
    for at, value, words in ((policy.VERSION_AT, 2, NEWER), (policy.STRATEGIES_AT, 7, STRATEGIES)):
        data = policy.changed(whole, at, value)
        path.write_bytes(data)
        run(path, *LEARNS, "exit", "7", status=7, said=[words])
        assert path.read_bytes() == data


def what_is_not_ours_stays(folder):
    path = folder / "f"
    path.write_text("Dear diary,\n")
    run(path, *LEARNS, "exit", "7", status=7, said=[FOREIGN])
    assert path.read_text() == "Dear diary,\n"
    judge_alone(path)
    path.unlink()
    with cases.running(LEARNER, *LEARNS, "wait", env=environment(path), stderr=subprocess.PIPE) as process:
        path.write_text("Dear diary, again\n")
        process.stdin.close()
        judge_lines(process.stderr.read(), [FOREIGN])
    assert path.read_text() == "Dear diary, again\n"
    judge_alone(path)
    (folder / "g").mkdir()
    run(folder / "g", *LEARNS, said=["no regular file"])
    os.mkfifo(folder / "h")
    run(folder / "h", *LEARNS, said=["no regular file"])
    assert (folder / "h").is_fifo()
    (folder / "i").symlink_to("/dev/null")
    run(folder / "i", *LEARNS, said=["no regular file"])
    assert (folder / "i").readlink() == Path("/dev/null")


def what_cannot_be_written_changes_nothing(folder):
    run(folder / "none" / "f", *LEARNS, "exit", "7", status=7, said=[KEPT])
    run("/sys/hakmem-policy", *LEARNS, "exit", "7", status=7, said=[KEPT])
    path = folder / "f"
    run(path, *LEARNS)
    before = path.read_bytes()
    full = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))}
    run(path, *LEARNS, "exit", "7", status=7, said=["no space left"], **full)
    assert path.read_bytes() == before
    judge_alone(path)
    run("x" * 5000, *LEARNS, said=["bad value"], cwd=folder)
    run("y" * 300, *LEARNS, said=["name is too long"], cwd=folder)
    judge_alone(path)


def lines_do_not_go_into_other_files(folder):
    run(folder / "none" / "f", *LEARNS, "stderr", str(folder / "data"))
    assert (folder / "data").read_bytes() == b""


def a_relative_path_is_of_the_start(folder):
    run("f", *LEARNS, "chdir", "/", cwd=folder)
    policy.read((folder / "f").read_bytes())
    judge_alone(folder / "f")


def children_of_forks(folder):
    path = folder / "f"
    run(path, *LEARNS, "fork")
    assert not path.exists(), "a child that learned nothing wrote"
    run(path, *LEARNS, "fork", *OTHER, "exit", "7", status=7)
    child = policy.read(path.read_bytes()).sites()
    path.unlink()
    run(path, *LEARNS, *OTHER)
    assert child == policy.read(path.read_bytes()).sites()
    judge_alone(path)


def in_time(case, *arguments):
    """The case once more where it took longer than a process waits for the lock. It goes on without then."""
    for _ in range(TRIES):
        begun = time.monotonic()
        case(*arguments)
        if time.monotonic() - begun < LOCK_WAIT_S:
            break


def end_together(path):
    path.unlink(missing_ok=True)
    processes = [
        subprocess.Popen([LEARNER, *steps], env=environment(path), stderr=subprocess.PIPE, text=True)
        for steps in (LEARNS, OTHER) * 6
    ]
    for process in processes:
        judge_lines(process.communicate(timeout=200)[1], ())
        assert process.returncode == 0


def many_at_once(folder):
    path = folder / "f"
    in_time(end_together, path)
    both = policy.read(path.read_bytes()).sites()
    judge_alone(path)
    for steps in (LEARNS, OTHER):
        run(folder / "g", *steps)
        one = policy.read((folder / "g").read_bytes()).sites()
        assert one <= both, f"what some of them learned is lost: {one} {both}"
        (folder / "g").unlink()


def who_writes_has_the_folders_lock(folder):
    """Another that merges has it for a moment, and one that never ends keeps nobody."""
    path = folder / "f"
    run(folder / "g", *OTHER)
    others = policy.read((folder / "g").read_bytes()).sites()
    lock = os.open(folder, os.O_RDONLY)

    def merge_when_it_is_free():
        path.unlink(missing_ok=True)
        fcntl.flock(lock, fcntl.LOCK_EX)
        begun = time.monotonic()
        with subprocess.Popen([LEARNER, *LEARNS, "exit", "7"], env=environment(path)) as process:
            time.sleep(0.6)
            waits = process.poll() is None and not path.exists()
            assert waits or time.monotonic() - begun >= LOCK_WAIT_S, "it does not wait"
            shutil.copy(folder / "g", path)
            fcntl.flock(lock, fcntl.LOCK_UN)
            assert process.wait(timeout=200) == 7

    in_time(merge_when_it_is_free)
    (folder / "g").unlink()
    both = policy.read(path.read_bytes()).sites()
    assert both > others, (both, others)
    path.unlink()
    fcntl.flock(lock, fcntl.LOCK_EX)
    run(path, *LEARNS)
    policy.read(path.read_bytes())
    os.close(lock)
    judge_alone(path)


def who_ends_last_keeps_what_others_learned(folder):
    path = folder / "f"
    with cases.running(LEARNER, *LEARNS, "wait", env=environment(path)):
        run(path, *OTHER)
        others = policy.read(path.read_bytes()).sites()
    both = policy.read(path.read_bytes()).sites()
    run(folder / "g", *LEARNS)
    own = policy.read((folder / "g").read_bytes()).sites()
    assert both >= own | others and len(both) > max(len(own), len(others)), (both, own, others)


def killed_at_any_time(folder):
    """How it is killed at each single call is in unit.os_file."""
    path = folder / "f"
    run(path, *LEARNS, *OTHER)
    start = time.monotonic()
    run(path, "a", "2", "b", "2")
    took = time.monotonic() - start
    chance = random.Random(5)
    for _ in range(60):
        process = subprocess.Popen([LEARNER, "a", "2", "b", "2"], env=environment(path), stderr=subprocess.DEVNULL)
        time.sleep(took * chance.uniform(0.3, 1.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
        policy.read(path.read_bytes())


cases.run(
    controls, what_is_learned_is_there_again, sites_are_the_same_at_other_addresses, frozen_reads_only,
    what_is_wrong_is_said_and_mended, what_is_not_ours_stays, what_cannot_be_written_changes_nothing,
    lines_do_not_go_into_other_files, a_relative_path_is_of_the_start, children_of_forks, many_at_once,
    who_writes_has_the_folders_lock, who_ends_last_keeps_what_others_learned, killed_at_any_time
)  # fmt: skip
