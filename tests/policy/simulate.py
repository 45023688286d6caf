"""policy_simulate: costs that were computed by hand, the same stream gives the same bytes, wrong input is one sentence.

simulate.py PROGRAM
Each run first shows that the judge of costs refuses other figures.
"""

import itertools
import json
import random
import subprocess
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / folder) for folder in (".", "lab")]
import cases
import made_trace

PROGRAM = sys.argv[1]
MIB = 1 << 20
LARGE = 64 * 1024 + 1  # bytes; shorter blocks come from slabs
FIXED = ("at_once", "10ms", "100ms", "1s", "10s", "warm")

# One site, 1 MiB (256 pages), wanted again after 50 ms, then after 2 s. Giving back costs 800 + 60 * 256 = 16160 ns, the
# faults 500 * 256 = 128000; a page pays 0.5 ns a millisecond, so all of them 128.
HAND = [(0, "+", 1, MIB), (100, "-", 1, MIB), (150, "+", 1, MIB), (150, "-", 1, MIB), (2150, "+", 1, MIB)]
AGAIN = 16160 + 128000
HAND_COSTS = {
    "at_once": 2 * AGAIN,
    "10ms": 2 * (10 * 128 + AGAIN),
    "100ms": 50 * 128 + 100 * 128 + AGAIN,
    "1s": 50 * 128 + 1000 * 128 + AGAIN,
    "10s": (50 + 2000) * 128,
    "warm": (50 + 2000) * 128,
}


def text(stream) -> str:
    return "".join(f"{ms} {sign} {site} {size}\n" for ms, sign, site, size in stream)


def run(folder, stream, *options, status=0):
    path = folder / "stream"
    path.write_bytes(stream if isinstance(stream, bytes) else stream.encode())
    command = [PROGRAM, *options, str(path)]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=200)
    assert result.returncode == status, f"{command}: status {result.returncode}: {result.stderr}"
    return result


def simulated(folder, stream, *options):
    return json.loads(run(folder, stream, "--json", *options).stdout.splitlines()[0])


def judge_costs(found, wanted):
    assert found == wanted, f"{found}, not {wanted}"


def random_stream(events=4000, seed=1):
    draw, now, live, made = random.Random(seed), 0, [], []
    for _ in range(events):
        if live and draw.random() < 0.5:
            made.append((now, "-", *live.pop(draw.randrange(len(live)))))
        else:
            block = (draw.randrange(300), draw.choice((100, 300_000, MIB, 3 * MIB + 5, 40 * MIB)))
            live.append(block)
            made.append((now, "+", *block))
        now += int(draw.expovariate(1 / draw.choice((1, 10, 300))))
    return made


def controls(folder):
    later = [*HAND[:-1], (2151, "+", 1, MIB)]
    for stream in (later, HAND[:-1], [*HAND[:1], (100, "-", 1, 2 * MIB), *HAND[2:]]):
        cases.refuses(AssertionError, judge_costs, simulated(folder, text(stream))["fixed"], HAND_COSTS)


def costs_by_hand(folder):
    found = simulated(folder, text(HAND))
    judge_costs(found["fixed"], HAND_COSTS)
    rest = {name: value for name, value in found.items() if name != "fixed"}
    judge_costs(rest, {
        "events": 5, "seconds": 2.15, "evolving": HAND_COSTS["1s"],  # begins like the delay, and one match is played
        "best_of_arm": HAND_COSTS["100ms"], "best_fixed": "100ms", "arms": 1, "matches": 1,
        "switches": rest["switches"],
    })  # fmt: skip
    # Twice the delay: half the rent. A fault of 1000 ns: as much rent, too, since they weigh the same at the delay.
    judge_costs(simulated(folder, text(HAND), "--delay", "2000")["fixed"]["warm"], 2050 * 64)
    found = simulated(folder, text(HAND), "--fault", "1000")["fixed"]
    judge_costs((found["warm"], found["at_once"]), (2050 * 256, 2 * (AGAIN + 128000)))


def sizes_are_those_of_large_objects(folder):
    def given_back(size):
        return simulated(folder, f"0 + 1 {size}\n0 - 1 {size}\n")["fixed"]["at_once"]

    pages = {LARGE: 32, 256 * 1024 + 1: 80, 300_000: 80, MIB: 256, 9 * MIB // 2 + 1: 1184, 32 * MIB - 1: 8192}
    for size, count in pages.items():
        judge_costs(given_back(size), (800 if size <= 31 * MIB else 3300) + 60 * count)
    judge_costs(given_back(32 * MIB + 1), 3300 + 60 * 8208)
    judge_costs(simulated(folder, f"0 + 1 {LARGE - 1}\n70 - 1 {LARGE - 1}\n")["events"], 0)


def the_same_stream_gives_the_same_bytes(folder):
    stream = text(random_stream())
    first = run(folder, stream, "--json", "--each", "100", "--save", folder / "a").stdout
    second = run(folder, stream, "--json", "--each", "100", "--save", folder / "b").stdout
    assert first == second and (folder / "a").read_bytes() == (folder / "b").read_bytes()
    plain = run(folder, stream, "--json").stdout
    assert first.splitlines()[0] == plain.strip(), "--each changes the figures"
    command = [PROGRAM, "--json", "-"]
    piped = subprocess.run(command, check=True, input=stream, capture_output=True, text=True, timeout=200).stdout
    assert piped == plain
    assert run(folder, stream).stdout == run(folder, stream).stdout
    other = run(folder, text(random_stream(seed=2)), "--json", "--save", folder / "c").stdout
    assert other != plain and (folder / "c").read_bytes() != (folder / "a").read_bytes()


def the_sums_on_the_way(folder):
    stream = random_stream(1000)
    large = sum(size >= LARGE for _, _, _, size in stream)
    stop = stream[-1][0]
    head, *rows = map(json.loads, run(folder, text(stream), "--json", "--each", "50").stdout.splitlines())
    assert head["events"] == large and [row["event"] for row in rows] == list(range(50, large + 1, 50))
    for before, row in itertools.pairwise(rows):
        assert all(before["fixed"][name] <= row["fixed"][name] for name in FIXED), (before, row)
        assert before["evolving"] <= row["evolving"], (before, row)
    # What the first so many events cost is what they cost alone.
    seen, cut = 0, []
    for event in stream:
        cut.append(event)
        seen += event[3] >= LARGE
        if seen == 100:
            break
    alone = simulated(folder, text(cut))
    judge_costs(rows[1]["fixed"], alone["fixed"])
    judge_costs(head["seconds"], stop / 1000)


def what_was_learned_is_loaded(folder):
    stream = [(i * 5000 + at, sign, 7, MIB) for i in range(40) for at, sign in ((0, "+"), (0, "-"))]
    fresh = simulated(folder, text(stream), "--save", folder / "learned")
    loaded = simulated(folder, text(stream), "--load", folder / "learned")
    judge_costs(loaded["fixed"], fresh["fixed"])
    assert loaded["evolving"] < fresh["evolving"], (loaded, fresh)
    assert loaded["evolving"] <= 1.1 * min(loaded["fixed"].values()), loaded
    # Of another site it says what sites of this size begin with.
    other = text([(ms, sign, 8, size) for ms, sign, _, size in stream])
    assert simulated(folder, other, "--load", folder / "learned")["evolving"] < fresh["evolving"]


def output_that_cannot_be_written(folder):
    (folder / "stream").write_text(text(random_stream()))
    for words in ((), ("--json",), ("--json", "--each", "1")):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([PROGRAM, *words, folder / "stream"], check=False, stdout=full, stderr=subprocess.PIPE)
        assert done.returncode == 1 and done.stderr.count(b"\n") == 1 and b"stdout: No space" in done.stderr, (words, done)


def a_trace_is_as_its_text(folder):
    """Sites are those of who took, whoever frees; small blocks count for time only; growth where it lies is no event."""
    ms = 1000
    event, offset = made_trace.Event, {"module": 1, "offset": 0x30}
    parts = [
        event(made_trace.MALLOC, 1, 1, 0x100000, MIB, **offset, time_us=0),
        event(made_trace.MALLOC, 2, 1, 0x900000, 50, time_us=1 * ms),
        event(made_trace.FREE, 3, 2, 0x100000, time_us=100 * ms),
        event(made_trace.MALLOC, 4, 2, 0x100000, MIB - 70_000, module=1, offset=0x30, time_us=150 * ms),
        event(made_trace.TOOK, 5, 1, 0x100000, time_us=150 * ms),
        event(made_trace.GAVE, 6, 1, 0x200000, MIB, module=1, offset=0x99, time_us=150 * ms),
        event(made_trace.FREE, 7, 1, 0x200000, time_us=150 * ms),
        event(made_trace.FREE, 8, 1, 0xA00000, time_us=200 * ms),
        event(made_trace.MALLOC, 9, 1, 0x100000, MIB, **offset, time_us=2150 * ms),
    ]
    data = made_trace.start() + made_trace.module(1) + made_trace.events(parts) + made_trace.end(len(parts), time_us=0)
    taken_smaller = [*HAND[:2], (150, "+", 1, MIB - 70_000), *HAND[3:]]
    judge_costs(simulated(folder, data), simulated(folder, text(taken_smaller)))
    cut = run(folder, data[:-10], "--json")
    assert "is damaged at byte" in cut.stderr and len(cut.stderr.splitlines()) == 1, cut.stderr
    judge_costs(json.loads(cut.stdout), simulated(folder, text(taken_smaller)))


def wrong_input_is_one_sentence(folder):
    good = "0 + 1 1048576\n"
    bad = [
        ("x", "line 1 is not"),
        (good + "5 * 1 100", "line 2 is not"),
        (good + "5 + 1", "line 2 is not"),
        (good + "5 + 1 100 9", "line 2 is not"),
        (good + "-5 + 1 100", "line 2 is not"),
        (good + "5 + 1 99999999999999999999", "line 2 is not"),
        ("5000000000 + 1 1048576\n", "line 1 is not"),
        (good + "\n" + good, "line 2 is not"),
        ("9 + 1 1048576\n8 - 1 1048576\n", "line 2: time goes back"),
        (good + "5" * 300, "longer than"),
        (b"hak\x1a" + bytes(100), "damaged at byte 0"),
    ]
    for stream, words in bad:
        said = run(folder, stream, "--json", status=2)
        assert said.stdout == "" and words in said.stderr and said.stderr.count("\n") == 1, said
    (folder / "mine").write_text("a text of mine\n")
    options = [
        (["--delay", "x"], "--delay takes"),
        (["--fault", "0"], "--fault takes"),
        (["--each", "5"], "--each needs --json"),
        (["--nonsense"], "unknown option"),
        (["--load", folder / "none"], "no such file"),
        (["--load", folder / "mine"], "is not a policy file"),
        (["--save", folder / "mine"], "not overwritten"),
        (["more"], "one argument too many"),
    ]
    for words, said in options:
        assert said in run(folder, good, *words, status=2).stderr, words
    assert (folder / "mine").read_text() == "a text of mine\n"
    broken = "9 + 1 1048576\n8 - 1 1048576\n"
    run(folder, broken, "--save", folder / "saved", status=2)
    assert not (folder / "saved").exists()


cases.run(
    controls, costs_by_hand, sizes_are_those_of_large_objects, the_same_stream_gives_the_same_bytes,
    the_sums_on_the_way, what_was_learned_is_loaded, output_that_cannot_be_written, a_trace_is_as_its_text,
    wrong_input_is_one_sentence
)  # fmt: skip
