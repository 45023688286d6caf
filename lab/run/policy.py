"""What learning is worth, run: the workloads of policy_load and two real programs, as events for the simulator, and in
real time with the engine off, evolving, and evolving from a file, in turns."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from lab.judge.outcome import Outcome
from lab.judge.policy import FILE, LARGE_ROW, MODES, NOTHING, OFF, SMALL_ROW, WINDOW, Costs, Step, recovery
from lab.run import apps, process, record, rounds, workloads
from lab.run.allocators import ROOT, Allocator
from lab.run.folder import Folder
from lab.run.workloads import Row
from lab.store.trace import BadTrace, Trace, library_in

GROUP = "policy"
PURSUER = "pursuer"  # shows how bad it can get; no goal counts it, and it is not measured
MADE = ("reuse", "one-shot", "bursts", "turn", "hundred", "wrapper", "growing", "server", "adversary", PURSUER)
COMPILER, ARRAYS = RECORDED = ("compiler", "numpy")
WORKS = MADE + RECORDED
TIMES = 10  # as long as measured: in half a minute one sees mostly what the beginning costs
SHORT_TIMES = 1
TURNING = "turn"
# Rows of `hak bench`, longer: a percent is to be seen.
OVERHEADS = {LARGE_ROW: "large_mix 100 64 16384 30000 SEED", SMALL_ROW: "random_mixed 100000000 400 SEED"}
PROGRAMS = ("policy_load", "policy_simulate", *(command.split()[0] for command in OVERHEADS.values()))
RUNS = 7
SPEED, DELAY_MS = 10, 100  # a second of purge delay, ten times as fast
TRACE_MAX = 1 << 30
TINY_WINDOW = 16  # events
POLICY, POLICY_FILE = "HAKMEM_POLICY", "HAKMEM_POLICY_FILE"


class Failed(Exception):
    """Why a workload cannot be run or simulated, in one sentence."""


class Absent(Failed):
    """Something is not installed."""


def chosen(words: Sequence[str]) -> list[str]:
    unknown = [word for word in words if word not in WORKS]
    if unknown:
        raise ValueError(f"unknown workload '{unknown[0]}' of policy; known: {', '.join(WORKS)}")
    return list(dict.fromkeys(words)) or list(WORKS)


def _run(words: Sequence[str], **how) -> bytes:
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False, **how)
    if done.returncode:
        raise Failed(f"{os.path.basename(words[0])}: {process.last_line(done.stderr) or f'status {done.returncode}'}")
    return done.stdout


@dataclass
class Bench:
    build_dir: str
    is_tiny: bool
    timeout: float
    library: str  # libhakmem.so
    folder: Folder = field(default_factory=Folder)
    commands: dict = field(default_factory=dict)  # of the recorded workloads, made once

    def _program(self, name: str) -> str:
        return os.path.join(self.build_dir, "bin", name)

    def _path(self, name: str) -> pathlib.Path:
        return pathlib.Path(self.folder.name, name)

    # --- commands ------------------------------------------------------------------------------------

    def words(self, work: str) -> list[str]:
        """What runs in real time."""
        if work in MADE:
            return [self._program("policy_load"), work, "--speed", str(SPEED), *(["--tiny"] if self.is_tiny else [])]
        if work not in self.commands:
            self.commands[work] = self._compiler() if work == COMPILER else self._arrays()
        return self.commands[work]

    def _arrays(self) -> list[str]:
        return [sys.executable, "-P", str(ROOT / "lab" / "run" / "arrays.py"), "1" if self.is_tiny else "48"]

    def _compiler(self) -> list[str]:
        """The compiler proper, in one process, on the preprocessed source that tests/apps compiles."""
        if shutil.which("g++") is None:
            raise Absent("g++ is not installed")
        compiler = _run(["g++", "-print-prog-name=cc1plus"]).decode().strip()
        if not os.path.isabs(compiler):
            raise Absent("this g++ has no cc1plus")
        source, preprocessed = self._path("t.cc"), self._path("t.ii")
        source.write_text("int t;\n" if self.is_tiny else apps.source("g++"), encoding="utf-8")
        _run(["g++", "-std=c++17", "-E", "-o", str(preprocessed), str(source)])
        return [compiler, "-quiet", "-fpreprocessed", "-std=c++17", "-O2", "-g", "-o", os.devnull, str(preprocessed)]

    # --- modelled ------------------------------------------------------------------------------------

    def _length(self, times: int) -> list[str]:
        return ["--tiny"] if self.is_tiny else ["--times", str(times)]

    def trace(self, work: str, times: int = TIMES) -> str:
        """The file with the events of a workload; a recorded one has the length it has."""
        if work in MADE:
            path = self._path(f"{work}.{times}.events")
            if not path.exists():
                path.write_bytes(_run([self._program("policy_load"), work, "--events", *self._length(times)]))
            return str(path)
        path = self._path(f"{work}.events")
        if path.exists():
            return str(path)
        recording = record.Recording(
            self.words(work), path, TRACE_MAX, False, pathlib.Path(self.build_dir, "lib", "libhakrecord.so")
        )
        try:
            record.prepare(recording)
            if record.run(recording, self.words(work)[0]):
                raise Failed("the recorded program failed")
            with Trace(path, library_in(self.build_dir)) as trace:
                if trace.facts.problem:
                    raise Failed(f"the trace {trace.facts.problem}")
        except (ValueError, BadTrace, OSError) as error:
            raise Failed(str(error)) from None
        return str(path)

    def _simulate(self, *words: str) -> list[dict]:
        try:
            said = _run([self._program("policy_simulate"), *words], timeout=self.timeout)
            return [json.loads(line) for line in said.splitlines()]
        except subprocess.TimeoutExpired as error:
            raise Failed(f"policy_simulate: no end after {error.timeout:g} s") from None
        except ValueError:
            raise Failed("policy_simulate: its output is not JSON") from None

    def costs(self, work: str, times: int = TIMES) -> Costs:
        trace, file = self.trace(work, times), str(self._path(f"{work}.ratings"))
        try:
            nothing = self._simulate("--save", file, "--json", trace)[0]
            again = self._simulate("--load", file, "--json", trace)[0]
            return Costs(
                work, nothing["fixed"], nothing["evolving"], again["evolving"], nothing["best_of_arm"],
                *(nothing[name] for name in ("events", "arms", "matches", "switches")), is_counted=work != PURSUER,
            )  # fmt: skip
        except (KeyError, IndexError) as error:
            raise Failed(f"policy_simulate: no {error} in its output") from None

    def recovered(self) -> list[int | None]:
        """After each turn of the workload that has some: the events until its cost is back (judge.policy.recovery)."""
        turns = _run([self._program("policy_load"), TURNING, "--turns", *self._length(TIMES)]).split()
        try:
            _, *lines = self._simulate("--each", "1", "--json", self.trace(TURNING))
            steps = [Step(line["event"], line["evolving"], line["fixed"]) for line in lines]
        except (KeyError, ValueError) as error:
            raise Failed(f"policy_simulate --each: {error} is missing") from None
        nothing = [Step(0, 0, dict.fromkeys(steps[0].fixed, 0))] if steps else []
        return recovery(nothing + steps, [int(turn) for turn in turns], TINY_WINDOW if self.is_tiny else WINDOW)

    # --- measured ------------------------------------------------------------------------------------

    def modes(self, work: str) -> list[Allocator]:
        """hakmem three times. DELAY_MS goes with the made workloads, which run SPEED times as fast as their own clock."""
        delay = {"HAKMEM_PURGE_DELAY_MS": str(DELAY_MS)} if work in MADE else {}
        ratings = {POLICY_FILE: str(self._path(f"{work}.learned"))}
        settings = {OFF: {POLICY: "off"}, NOTHING: {POLICY: "evolving"}, FILE: {POLICY: "evolving"} | ratings}
        return [Allocator(mode, self.library, "", settings[mode] | delay) for mode in MODES]

    def row(self, work: str) -> Row:
        command = " ".join(os.path.basename(word) for word in self.words(work))
        return Row(work, GROUP, command, command)


@dataclass
class Turns(rounds.Rounds):
    """Rounds of commands that policy_load runs or is."""

    bench: Bench | None = None
    learned: dict = field(default_factory=dict)  # workload -> (the file of ratings, what is in it when a run starts)

    def open_work(self, work: str) -> tuple[Row, Outcome, list[rounds.Entry]]:
        """A workload before its first run. One run has learned for the file, or that series has a problem."""
        row = self.bench.row(work)
        outcome, entries = self.open_row(row, self.bench.modes(work), NOTHING)
        outcome.wanted = ()
        entry = next(entry for entry in entries if entry.series.name == FILE)
        ratings = pathlib.Path(entry.allocator.settings[POLICY_FILE])
        _, entry.series.problem = self.run(row, entry)
        if not entry.series.problem and not ratings.is_file():
            entry.series.problem = "the engine wrote no file"
        if not entry.series.problem:
            self.learned[work] = ratings, ratings.read_bytes()
        return row, outcome, entries

    def words_of(self, row: Row, added: dict[str, str]) -> tuple[list[str], dict[str, str]]:
        """The command of one run and the variables for all of it: a program that is watched has its own."""
        words = self.bench.words(row.name)
        if row.name in MADE:
            return words, added
        variables = [word for name, value in added.items() for word in ("--env", f"{name}={value}")]
        return [os.path.join(self.build_dir, "bin", "policy_load"), "--watch", *variables, *words], {}

    def run(self, row: Row, entry: rounds.Entry, count_calls: bool = False) -> tuple[dict | None, str]:
        if entry.series.name == FILE and row.name in self.learned:
            ratings, content = self.learned[row.name]
            ratings.write_bytes(content)
        words, added = self.words_of(row, process.variables(entry.allocator, self.links))
        environment = process.clean_environment(self.settings | {"OPENBLAS_NUM_THREADS": "1"})
        done = process.run(words, environment, added, build_dir=self.build_dir, timeout=self.timeout)
        result, problem = process.result(done)
        if problem:
            return None, problem
        if row.name in MADE:
            if problem := process.settle_malloc(result, entry.allocator):
                return None, problem
        else:
            result["malloc"] = entry.allocator.library
        return result | {"hash": row.name, "operations": 1, "ops_per_s": 1 / result["seconds"]}, ""


def overhead_row(name: str) -> Row:
    """Without what else is measured in the turns of that row."""
    return replace(workloads.ROWS[name], command=OVERHEADS[name], variants=())


def overhead_modes(library: str) -> list[Allocator]:
    return [
        Allocator(OFF, library, "", {POLICY: "off"}),
        Allocator(NOTHING, library, "", {POLICY: "evolving"}),
    ]
