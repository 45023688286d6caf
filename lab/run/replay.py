"""Replays a trace on allocators in turns. bin/replay does the work of one run, from a plan made of the trace."""

import csv
import os
import pathlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lab.judge.allocations import smear
from lab.judge.outcome import Outcome, Series
from lab.run import machine, process
from lab.run.allocators import Allocator

RECORD_BYTES = 16  # of a step in a plan
SLOT_BYTES = 24
HEADROOM = 1.3  # resident memory over live bytes that must be there before a replay starts


def memory_available() -> int:
    """Bytes; 0 if the system does not tell."""
    return machine.memory_kb("MemAvailable") * 1024


def memory_wanted(steps: int, live_peak: int) -> int:
    """Bytes of one replay: its tables and the heap, every page of a block written."""
    return int(HEADROOM * (live_peak + steps * (RECORD_BYTES + SLOT_BYTES / 2)))


@dataclass
class Replays:
    """`series` are filled by run(); on KeyboardInterrupt the complete runs stay."""

    plan: pathlib.Path
    build_dir: str
    allocators: Sequence[Allocator]
    runs: int
    cpu: int | None
    timeout: float
    outcome: Outcome
    on_turn: Callable | None = None  # called as on_turn(allocator, run) before a run
    on_run: Callable | None = None  # called as on_run(allocator, run, result, samples) after a measured one
    links: process.Links = field(default_factory=process.Links)
    reference: tuple[str, str] | None = None  # whose hash all must have, and the hash

    def run(self) -> None:
        """Run 0 warms up and is dropped; every other round goes backwards. One that fails is out."""
        for run in range(self.runs + 1):
            turn = [allocator for allocator in self.allocators if not self._series(allocator).problem]
            results = {}
            for allocator in turn if run % 2 else reversed(turn):
                if self.on_turn:
                    self.on_turn(allocator, run)
                result, samples, problem = self._once(allocator)
                self._series(allocator).problem = problem
                if result:
                    results[allocator.name] = result, samples
            self._compare({name: result["hash"] for name, (result, _) in results.items()})
            for allocator in turn:
                if run and allocator.name in results and not self._series(allocator).problem:
                    result, samples = results[allocator.name]
                    self._series(allocator).results[run] = result
                    if self.on_run:
                        self.on_run(allocator, run, result, samples)

    def _compare(self, hashes: dict[str, str]) -> None:
        """All runs of a plan have one hash, glibc's. Without glibc it is that of the first allocator named; where one
        differs, nobody knows which of the two is wrong, and both are out."""
        if not self.reference and hashes:
            names = ["glibc", *(allocator.name for allocator in self.allocators)]
            first = next(name for name in names if name in hashes)
            self.reference = first, hashes[first]
        for name, found in hashes.items():
            whose, wanted = self.reference
            if found == wanted:
                continue
            if whose == "glibc":
                self.outcome.of(name).problem = f"wrong work: hash {found}, not {wanted}"
                continue
            for series in (self.outcome.of(name), self.outcome.of(whose)):
                series.problem = series.problem or f"hashes differ: {whose} {wanted}, {name} {found}"

    def _series(self, allocator: Allocator) -> Series:
        return self.outcome.of(allocator.name)

    def _once(self, allocator: Allocator) -> tuple[dict | None, list, str]:
        samples = self.plan.with_name("samples.csv")  # in the plan's folder, which goes whatever ends this process
        samples.unlink(missing_ok=True)
        words = [os.path.join(self.build_dir, "bin", "replay"), str(self.plan), "--json", "--samples", str(samples)]
        done = process.run(words, process.clean_environment(), process.variables(allocator, self.links),
                           build_dir=self.build_dir, cpu=self.cpu, timeout=self.timeout)  # fmt: skip
        result, problem = process.result(done)
        if problem:
            return None, [], problem
        with samples.open(encoding="ascii") as file:
            rows = [tuple(map(int, row)) for row in list(csv.reader(file))[1:]]
        result.pop("parameters", None)
        if problem := process.settle_malloc(result, allocator):
            return None, [], problem
        if result["refused"]:
            return None, [], f"it refused {result['refused']:.0f} of the blocks"
        if result["dirty"]:
            return None, [], f"wrong work: {result['dirty']:.0f} blocks were not zeroed, not aligned or lost content"
        result["heap_kb"] = max(0, result["rss_kb"] - result["tables_kb"])
        result["heap_peak_kb"] = max(0, result["rss_peak_kb"] - result["tables_kb"])
        if result["live_peak_kb"]:
            result["peak_over_live"] = result["heap_peak_kb"] / result["live_peak_kb"]
        over_time = smear([live for _, live, _ in rows], [rss for _, _, rss in rows])
        if over_time is not None:
            result["mean_over_live"] = over_time
        if rows:  # at most PLAN_SAMPLES (bench/trace/plan.h) points
            result["curve_progress"] = [round(step / result["operations"], 4) for step, _, _ in rows]
            result["curve_live_kb"] = [live for _, live, _ in rows]
            result["curve_rss_kb"] = [rss for _, _, rss in rows]
        return result, rows, ""


def open_outcome(work: str, subject: str, allocators: Sequence[Allocator]) -> Outcome:
    return Outcome(work, subject, [Series(allocator.name, f"replay {work}", allocator.is_peer, allocator.missing,
                                          absent=bool(allocator.missing)) for allocator in allocators])  # fmt: skip
