"""Runs a row: every allocator in turns, in a clean environment, and keeps what each run said."""

import json
import os
import signal
import subprocess
import tempfile
from dataclasses import dataclass, field
from statistics import median

from lab import apps
from lab.allocators import SUBJECT, Allocator

PASSED_ON = ("PATH", "HOME", "TMPDIR")
REPORT = '{"hakmem":'  # how the line begins that HAKMEM_STATS=json prints at exit


@dataclass
class Entry:
    """One allocator (or variant of the program) in one row."""
    name: str
    allocator: object
    command: str
    problem: str = ""
    results: dict = field(default_factory=dict)  # run number -> result
    environment: dict = field(default_factory=dict)
    absent: bool = False  # the problem is that something is not installed

    def values(self, key):
        return {run: float(result[key]) for run, result in self.results.items() if key in result}


@dataclass
class Outcome:
    """A row after its runs. `subject` is the entry that is compared with the others."""
    row: object
    entries: list
    subject: str

    def entry(self, name):
        return next((entry for entry in self.entries if entry.name == name), None)

    def pairs(self, first, second, key, combine):
        """combine(first's value, second's value) of each run that both finished."""
        a, b = self.entry(first), self.entry(second)
        if not a or not b:
            return {}
        x, y = a.values(key), b.values(key)
        return {run: combine(x[run], y[run]) for run in sorted(x.keys() & y.keys())}

    def rate_ratio(self, first, second):
        return self.pairs(first, second, "ops_per_s", lambda x, y: x / y)

    def best_peer(self, key="ops_per_s"):
        """The name of the measured peer with the highest median rate, or None."""
        peers = [entry for entry in self.entries
                 if entry.values(key) and entry.allocator.is_peer and entry.command == self.entries[0].command
                 and entry.name != self.subject]
        return max(peers, key=lambda entry: median(entry.values(key).values())).name if peers else None


@dataclass
class Runner:
    build_dir: str
    runs: int
    tiny: bool
    seed: int
    cpu: object  # for rows with one thread; None: not pinned
    timeout: float
    cpu_time: bool  # rates of rows with one thread from CPU time
    settings: dict  # further environment variables, for every run
    on_run: object = None  # called as on_run(row, entry, run, result) after a measured run
    on_turn: object = None  # called as on_turn(row, entry, run) before any run
    _links: object = None

    def environment(self, entry):
        environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        environment.update(self.settings, LC_ALL="C")
        environment.update(entry.environment)
        if entry.allocator.library:
            environment["LD_PRELOAD"] = self._preloadable(entry.allocator)
        return environment

    def _preloadable(self, allocator):
        """LD_PRELOAD is split at spaces and colons; a path with one is reached through a link."""
        if not set(allocator.library) & set(" :\t\n"):
            return allocator.library
        if self._links is None:
            self._links = tempfile.TemporaryDirectory(prefix="hakmem-lab-")
        link = os.path.join(self._links.name, allocator.name + ".so")
        if not os.path.lexists(link):
            os.symlink(allocator.library, link)
        return link

    def words(self, command):
        program, *arguments = command.split()
        return [os.path.join(self.build_dir, "bin", program), *arguments]

    def run(self, row, entry):
        """One run: (result, "") or (None, what went wrong)."""
        if row.group == apps.GROUP:
            return apps.run(self.words(entry.command), self.environment(entry), self.timeout)
        def pin():
            os.sched_setaffinity(0, {self.cpu})
        words = self.words(entry.command) + ["--json"]
        try:
            done = subprocess.run(words, env=self.environment(entry), stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, errors="replace", timeout=self.timeout,
                                  preexec_fn=None if row.threads or self.cpu is None else pin, check=False)
        except subprocess.TimeoutExpired:
            return None, f"no end after {self.timeout:g} s"
        except OSError as error:
            return None, f"{words[0]}: {error.strerror}"
        last = (done.stderr.strip().splitlines() or [""])[-1]
        if done.returncode < 0:
            return None, f"died of {signal.Signals(-done.returncode).name}{last and ': ' + last}"
        if done.returncode:
            return None, f"status {done.returncode}: {last}"
        try:
            result = json.loads(done.stdout)
        except ValueError:
            return None, "its output is not JSON"
        library = entry.allocator.library
        if library and os.path.realpath(result["malloc"]) != os.path.realpath(library):
            return None, f"malloc came from {result['malloc']}, not from the preloaded library"
        if "HAKMEM_STATS" in entry.environment:
            reports = [line for line in done.stderr.splitlines() if line.startswith(REPORT)]
            if len(reports) != 1:
                return None, f"{len(reports)} reports of hakmem on stderr"
            calls = sum(count for key, count in json.loads(reports[0]).items() if key.startswith("calls_"))
            result["calls_per_100m"] = calls * 1e8 / result["operations"]
        if self.cpu_time and not (row.threads or row.children):
            result["ops_per_s"] = result["operations"] / max(result["cpu_seconds"], 1e-9)
        return result, ""

    def open_row(self, row, allocators, subject):
        """The row before its first run: an entry for each allocator and each variant."""
        def command(full, tiny):
            return (tiny if self.tiny else full).replace("SEED", str(self.seed))
        entries = [Entry(allocator.name, allocator, command(row.command, row.tiny), allocator.missing,
                         absent=bool(allocator.missing))
                   for allocator in allocators if allocator.name not in row.without or allocator.name == subject]
        for variant in row.variants:
            runs_on = next((allocator for allocator in allocators if allocator.name == SUBJECT), None)
            if variant.subject and not runs_on:
                continue
            full = command(variant.command, variant.tiny)
            if not variant.subject:
                runs_on = Allocator("glibc", None)
            problem = "" if os.access(self.words(full)[0], os.X_OK) else f"no {full.split()[0]} in {self.build_dir}/bin"
            entries.append(Entry(variant.name, runs_on, full, problem or runs_on.missing,
                                 environment=dict(variant.environment), absent=bool(problem or runs_on.missing)))
        lost = apps.missing(row.command.split()[1]) if row.group == apps.GROUP else ""
        for entry in entries if lost else ():
            entry.problem, entry.absent = lost, True
        return Outcome(row, entries, subject)

    def run_row(self, outcome):
        """Fills the outcome. Run 0 warms up and is dropped; every other round goes backwards. An entry that
        fails is out for the rest of the row. On KeyboardInterrupt the complete rounds stay in the outcome."""
        for run in range(1 if self.tiny else 0, min(self.runs, outcome.row.runs_max or self.runs) + 1):
            turn = [entry for entry in outcome.entries if not entry.problem]
            results = {}
            for entry in turn if run % 2 else reversed(turn):
                if self.on_turn:
                    self.on_turn(outcome.row, entry, run)
                result, entry.problem = self.run(outcome.row, entry)
                if result:
                    results[entry.name] = result
            reference = results.get("glibc") or next(iter(results.values()), None)
            for entry in turn:
                result = results.get(entry.name)
                if result and result["hash"] != reference["hash"]:
                    entry.problem = f"wrong work: hash {result['hash']}, not {reference['hash']}"
                elif result and run:
                    entry.results[run] = result
                    if self.on_run:
                        self.on_run(outcome.row, entry, run, result)
