"""Runs a row: every allocator in turns, in a clean environment, and keeps what each run said."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lab.judge import latency
from lab.judge.outcome import Outcome, Series
from lab.run import apps, huge_pages, machine, process
from lab.run.allocators import OURS, PEERS, SUBJECT, Allocator
from lab.run.workloads import Row

# System calls of the whole program as the kernel counts them, and those that hakmem says it made.
CALLS = ("system_calls", "calls_own", "calls_per_100m")
REPORT = '{"hakmem":'  # how the line begins that HAKMEM_STATS=json prints at exit


@dataclass
class Entry:
    """A series and what it runs on."""

    series: Series
    allocator: Allocator
    settings: dict[str, str] = field(default_factory=dict)


@dataclass
class Rounds:
    build_dir: str
    runs: int
    is_tiny: bool
    seed: int
    cpu: int | None  # for rows with one thread; None: not pinned
    timeout: float
    is_cpu_time: bool  # rates of rows with one thread from CPU time
    settings: dict[str, str]  # further environment variables, for every run
    on_run: Callable | None = None  # called as on_run(row, entry, run, result) after a measured run
    on_turn: Callable | None = None  # called as on_turn(row, entry, run) before any run
    links: process.Links = field(default_factory=process.Links)
    reported: dict[str, int] = field(default_factory=dict)  # by the last run that printed hakmem's report

    def words(self, command: str) -> list[str]:
        program, *arguments = command.split()
        return [os.path.join(self.build_dir, "bin", program), *arguments]

    def clock(self, row: Row) -> str:
        return "cpu" if self.is_cpu_time and not (row.threads or row.children) else "wall"

    def runs_of(self, row: Row) -> int:
        return min(self.runs, row.runs_max or self.runs)

    def pinned(self, row: Row) -> int | None:
        return None if row.threads else self.cpu

    def fields(self, row: Row, entry: Entry, run: int, result: dict) -> dict:
        """What a stored row says of a run (lab.store.rows.Writer)."""
        is_inlined = result["malloc"] == "inlined"
        return {
            "work": row.name, "command": self.words(entry.series.command), "seed": self.seed,
            "allocator": entry.series.name, "library": "inlined" if is_inlined else entry.allocator.library,
            "version": "" if is_inlined else entry.allocator.version,
            "settings": self.settings | dict(entry.allocator.settings) | entry.settings, "run": run,
            "n": self.runs_of(row), "cpu_pinned": self.pinned(row), "clock": self.clock(row), "load": machine.load(),
            "is_tiny": self.is_tiny, "result": result,
        }  # fmt: skip

    def run(self, row: Row, entry: Entry, count_calls: bool = False) -> tuple[dict | None, str]:
        """One run: (result, "") or (None, what went wrong)."""
        environment = process.clean_environment(self.settings) | entry.settings
        how = {
            "build_dir": self.build_dir,
            "cpu": self.pinned(row),
            "timeout": self.timeout,
            "count_calls": count_calls,
        }
        if row.is_app:
            _, name, *word = entry.series.command.split()
            return apps.run(name, "".join(word), entry.allocator, self.links, environment, **how)
        words = [*self.words(entry.series.command), "--json"]
        done = process.run(words, environment, process.variables(entry.allocator, self.links), **how)
        result, problem = process.result(done)
        if problem:
            return None, problem
        result.pop("parameters", None)
        if "latency" in result:
            result |= latency.figures(result)
            del result["latency"]
        if problem := process.settle_malloc(result, entry.allocator):
            return None, problem
        result["system_calls"] = done.system_calls
        if entry.allocator.name in OURS and environment.get("HAKMEM_STATS") == "json":
            self.reported, problem = _report(done)
            if problem:
                return None, problem
            calls = sum(count for key, count in self.reported.items() if key.startswith("calls_"))
            result |= {"calls_own": calls, "calls_per_100m": calls * 1e8 / result["operations"]}
        if self.clock(row) == "cpu":
            result["ops_per_s"] = result["operations"] / max(result["cpu_seconds"], 1e-9)
        return result, ""

    def count(self, row: Row, entry: Entry, result: dict) -> dict:
        """What is known of system calls: those of the program, which `result` has, and those that hakmem counts itself,
        from a run of its own, as its report makes some, too."""
        counted = {key: result[key] for key in CALLS if key in result}
        if entry.allocator.name in OURS and not row.children and "calls_own" not in counted:
            reporting = Entry(entry.series, entry.allocator, entry.settings | {"HAKMEM_STATS": "json"})
            own, _ = self.run(row, reporting)
            counted |= {key: own[key] for key in CALLS if own and key in own and key != "system_calls"}
        return counted

    def open_row(self, row: Row, allocators: Sequence[Allocator], subject: str) -> tuple[Outcome, list[Entry]]:
        """The row before its first run: an entry for each allocator and each variant."""

        def command(full: str, tiny: str) -> str:
            return (tiny if self.is_tiny else full).replace("SEED", str(self.seed))

        entries = []
        for allocator in allocators:
            if allocator.name not in row.without or allocator.name == subject:
                series = Series(allocator.name, command(row.command, row.tiny), allocator.is_peer, allocator.missing,
                                absent=bool(allocator.missing))  # fmt: skip
                entries.append(Entry(series, allocator))
        for variant in row.variants:
            runs_on = next((allocator for allocator in allocators if allocator.name == SUBJECT), None)
            if variant.subject and not runs_on:
                continue
            full = command(variant.command, variant.tiny)
            if not variant.subject:
                runs_on = Allocator("glibc", None)  # nothing is preloaded
            problem = "" if os.access(self.words(full)[0], os.X_OK) else f"no {full.split()[0]} in {self.build_dir}/bin"
            series = Series(variant.name, full, False, problem or runs_on.missing, bool(problem or runs_on.missing))
            entries.append(Entry(series, runs_on, dict(variant.environment)))
        lost = apps.missing(row.command.split()[1]) if row.is_app else ""
        lost = lost or (huge_pages.missing() if row.huge_pages and not self.is_tiny else "")
        for entry in entries if lost else ():
            entry.series.problem, entry.series.absent = lost, True
        wanted = tuple(peer for peer in PEERS if peer not in row.without and peer != subject)
        return Outcome(row.name, subject, [entry.series for entry in entries], wanted), entries

    def run_row(self, row: Row, entries: Sequence[Entry]) -> None:
        """Fills the series. Run 0 warms up, counts system calls, and is dropped; every other round goes backwards. An
        entry that fails is out for the rest of the row. On KeyboardInterrupt the complete runs stay."""
        if all(entry.series.problem for entry in entries):
            return
        try:
            with huge_pages.switched("" if self.is_tiny else row.huge_pages):
                self._run_row(row, entries)
        except huge_pages.Refused as refused:
            for entry in entries:
                entry.series.problem = entry.series.problem or str(refused)

    def _run_row(self, row: Row, entries: Sequence[Entry]) -> None:
        counted: dict[str, dict] = {}
        for run in range(1 if self.is_tiny else 0, self.runs_of(row) + 1):
            turn = [entry for entry in entries if not entry.series.problem]
            results: dict[str, dict] = {}
            for entry in turn if run % 2 else reversed(turn):
                name = entry.series.name
                if self.on_turn:
                    self.on_turn(row, entry, run)
                result, entry.series.problem = self.run(row, entry, count_calls=name not in counted)
                if result:
                    if name not in counted:
                        counted[name] = self.count(row, entry, result)
                    results[name] = result | counted[name]
            _check_work(turn, results)
            for entry in turn:
                result = results.get(entry.series.name)
                if result and run and not entry.series.problem:
                    entry.series.results[run] = result
                    if self.on_run:
                        self.on_run(row, entry, run, result)


def _report(done: process.Measured) -> tuple[dict[str, int], str]:
    """The figures of hakmem's report, and ""; or why there is none."""
    reports = [line for line in done.stderr.decode(errors="replace").splitlines() if line.startswith(REPORT)]
    if len(reports) != 1:
        return {}, f"{len(reports)} reports of hakmem on stderr"
    return {key: count for key, count in json.loads(reports[0]).items() if isinstance(count, int)}, ""


def _check_work(turn: Sequence[Entry], results: dict[str, dict]) -> None:
    """The hash must be glibc's. Without glibc nobody knows who is wrong."""
    hashes = {name: result["hash"] for name, result in results.items()}
    for entry in turn:
        name = entry.series.name
        if name not in hashes or len(set(hashes.values())) == 1:
            continue
        if "glibc" not in hashes:
            said = ", ".join(f"{other} {found}" for other, found in sorted(hashes.items()))
            entry.series.problem = f"hashes differ: {said}"
        elif hashes[name] != hashes["glibc"]:
            entry.series.problem = f"wrong work: hash {hashes[name]}, not {hashes['glibc']}"
