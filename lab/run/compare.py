"""The user's own program under several allocators in turns.

Round 0 warms up and is dropped; the loader reports in it whose malloc each process got. Rounds 1 to N are measured,
every other one backwards. System calls are counted in a round of their own at the end, as counting slows each down.
"""

import contextlib
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lab.judge import recommend
from lab.run import process, program, server, tree
from lab.run.allocators import Allocator
from lab.run.folder import Folder
from lab.run.program import Refused

# What would disturb: another preload, and the settings of allocators.
DISTURBING = re.compile(
    r"LD_PRELOAD|LD_DEBUG\w*|(HAKMEM|MIMALLOC|TCMALLOC|MALLOC|JEMALLOC|SCUDO)_\w*|GLIBC_TUNABLES|HEAPPROFILE|HEAPCHECK"
)
OWN = "as-is"  # the name of the reference where the program brings a malloc along
LINES_SHOWN = 20  # of what a program said that failed


def user_environment(is_clean: bool, settings: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """What CMD gets, and the names of the user's variables that were dropped because they would disturb."""
    if is_clean:
        return process.clean_environment(settings), []
    users = program.users_environment()
    dropped = sorted(name for name in users if DISTURBING.fullmatch(name))
    return {name: value for name, value in users.items() if name not in dropped} | dict(settings), dropped


@dataclass(frozen=True)
class Plan:
    words: Sequence[str]
    build_dir: str
    environment: Mapping[str, str]
    runs: int
    timeout: float
    cpu: int | None = None
    stdin: bytes = b""
    until: str | None = None  # the load, a line for the shell: then CMD is a server
    ready: str | None = None
    is_same_output: bool = False

    @property
    def command(self) -> str:
        return shlex.join(self.words)


@dataclass
class Candidate:
    allocator: Allocator
    problem: str = ""
    results: dict[int, dict] = field(default_factory=dict)
    system_calls: int | None = None

    @property
    def name(self) -> str:
        return self.allocator.name

    def values(self, key: str) -> dict[int, float]:
        return {run: result[key] for run, result in self.results.items() if key in result}


@dataclass
class Comparison:
    """`on_turn(candidate, run)` is called before a run, `on_run(candidate, run)` after one that counts."""

    plan: Plan
    candidates: list[Candidate]  # the first is the reference
    notes: list[str] = field(default_factory=list)
    failure: str = ""  # why the reference did not get through all rounds
    on_turn: Callable = lambda *_: None
    on_run: Callable = lambda *_: None
    links: process.Links = field(default_factory=process.Links)
    stdout: bytes = b""  # of the reference's first run

    def __post_init__(self):
        self.before = frozenset(tree.descendants())
        self.others = set(self.before)  # and what cannot be ended

    @property
    def reference(self) -> Candidate:
        return self.candidates[0]

    @property
    def compared(self) -> int:
        """How many there are verdicts of."""
        return sum(bool(candidate.results) for candidate in self.candidates if candidate is not self.reference)

    def measured(self) -> recommend.Measured:
        """The figures of those that ran without a fault: what a recommendation is made of."""
        keys = [figure.key for figure in recommend.JUDGED]
        return {candidate.name: {key: candidate.values(key) for key in keys}
                for candidate in self.candidates if candidate.results and not candidate.problem}  # fmt: skip

    def run(self) -> None:
        """All rounds. On KeyboardInterrupt what was measured stays. Refused: CMD cannot be compared."""
        tree.adopt()
        self._check()
        try:
            self._warm_up()
            for run in range(1, self.plan.runs + 1):
                turn = [candidate for candidate in self.candidates if not candidate.problem]
                for candidate in turn if run % 2 else reversed(turn):
                    self._measure(candidate, run)
                if self.failure:
                    return
            self._count_calls()
        finally:
            tree.end(self.others)

    def _check(self) -> None:
        file = program.find(self.plan.words[0], self.plan.environment.get("PATH"))
        reason = program.why_no_preload(file)
        if reason:
            raise Refused(f"{self.plan.words[0]} {reason}: no allocator can be compared on it", 2)

    # --- one run --------------------------------------------------------------------------------------

    def _once(self, candidate: Candidate, added: Mapping[str, str] | None = None, **how) -> server.Loaded:
        plan = self.plan
        added = dict(added or {})
        how |= {"build_dir": plan.build_dir, "environment_bytes": self._environment_bytes(added)}

        variables = process.variables(candidate.allocator, self.links) | added

        def start(timeout: float | None) -> process.Measured:
            return process.run(plan.words, plan.environment, variables, cpu=plan.cpu, stdin=plan.stdin, timeout=timeout,
                               **how)  # fmt: skip

        try:
            if plan.until is None:
                done = _loaded(start(plan.timeout))
            else:
                starter = os.path.join(plan.build_dir, "bin", "measure")
                with server.Server(lambda: start(None), starter, self.others) as serving:
                    done = server.load(serving, self._load, self._is_ready if plan.ready else None, plan.timeout)
        finally:
            tree.end(self.others)
            tree.reap(self.others)
        if lasting := self.others - self.before:
            raise Refused(f"process {min(lasting)} of {plan.command} does not end, {tree.END_SECONDS:g} s after SIGKILL: "
                          "the next run would not be alone")  # fmt: skip
        return done

    def _environment_bytes(self, added: Mapping[str, str]) -> int:
        """What the longest environment takes: all are as long, whatever the user's adds to them."""
        return max(process.bytes_of({**self.plan.environment, **process.variables(candidate.allocator, self.links), **added,
                                     process.PADDING: ""})
                   for candidate in self.candidates if not candidate.allocator.missing)  # fmt: skip

    def _load(self) -> process.Measured:
        return process.run(["sh", "-c", self.plan.until], self.plan.environment, {}, build_dir=self.plan.build_dir,
                           timeout=self.plan.timeout)  # fmt: skip

    def _is_ready(self) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run(["sh", "-c", self.plan.ready], env=dict(self.plan.environment), check=False,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  timeout=self.plan.timeout)  # fmt: skip
            return done.returncode == 0
        return False

    # --- the rounds -----------------------------------------------------------------------------------

    def _warm_up(self) -> None:
        done, served = self._probe(self.reference)
        self._must_run(done)
        self.stdout = done.stdout
        if not served.sources:
            raise Refused("no process of it told where its malloc comes from (another libc, or a wrapper that clears "
                          "the environment): no allocator can be compared on it")  # fmt: skip
        if served.own:
            self._keep_own(served)
        for candidate in [candidate for candidate in self.candidates[1:] if not candidate.problem]:
            done, served = self._probe(candidate)
            if done.problem:
                candidate.problem = done.problem
            elif not served.by(candidate.allocator.library):
                source = served.not_by(candidate.allocator.library)
                candidate.problem = f"malloc did not come from it, but from {source or 'an unknown place'}"
            else:
                self._same_output(candidate, done)
                self._note_strangers(served, candidate)

    def _probe(self, candidate: Candidate) -> tuple[server.Loaded, program.Served]:
        self.on_turn(candidate, 0)
        with Folder() as folder:
            done = self._once(candidate, program.bindings(folder))
            return done, program.served(folder)

    def _must_run(self, done: server.Loaded) -> None:
        if done.problem:
            said = done.said.decode(errors="replace").splitlines()[-LINES_SHOWN:]
            what = "the server and its load fail" if self.plan.until else "it fails"
            raise Refused(
                "\n    ".join([f"{self.plan.command}: {what} on {self.reference.name}: {done.problem}", *said])
            )

    def _keep_own(self, served: program.Served) -> None:
        """The reference is what the user has: the program's own malloc. glibc's becomes a candidate."""
        own = served.own
        if not re.search(r"\.so(\.|$)", own):
            if all(own in found for found in served.sources.values()):
                raise Refused(f"{os.path.basename(own)} has a malloc linked into itself, which a preload does not replace: "
                              "no allocator can be compared on it")  # fmt: skip
            self.notes.append(
                f"{os.path.basename(own)} has a malloc linked into itself and keeps it on every allocator"
            )
            return
        glibc = self.reference.allocator
        self.notes.append(f"the program brings its own malloc, {os.path.basename(own)}: {OWN} is the program with that, "
                          "and the others replace it")  # fmt: skip
        self.candidates[0] = Candidate(replace(glibc, name=OWN))
        self.candidates.insert(1, Candidate(replace(glibc, library=program.libc())))

    def _note_strangers(self, served: program.Served, candidate: Candidate) -> None:
        other = served.not_by(candidate.allocator.library)
        note = f"some processes of it run with {os.path.basename(other)} instead of the preloaded library"
        if other and note not in self.notes and not any(os.path.basename(other) in known for known in self.notes):
            self.notes.append(note)

    def _measure(self, candidate: Candidate, run: int) -> None:
        self.on_turn(candidate, run)
        done = self._once(candidate)
        if self._is_good(candidate, done, f"round {run}"):
            candidate.results[run] = done.result
            self.on_run(candidate, run)

    def _count_calls(self) -> None:
        for candidate in [candidate for candidate in self.candidates if not candidate.problem]:
            self.on_turn(candidate, self.plan.runs + 1)
            done = self._once(candidate, count_calls=True)
            if self._is_good(candidate, done, "the run that counts system calls"):
                candidate.system_calls = done.result.get("system_calls")
            if self.failure:
                return

    def _is_good(self, candidate: Candidate, done: server.Loaded, when: str) -> bool:
        """Says what is wrong with a run. A fault of the reference ends the comparison."""
        if done.problem:
            candidate.problem = f"{when}: {done.problem}"
            if candidate is self.reference:
                self.failure = f"{self.plan.command} failed on {candidate.name} in {when}: {done.problem}"
        elif candidate is self.reference and self.plan.is_same_output and done.stdout != self.stdout:
            raise Refused(f"--same-output: its output differs from run to run on {candidate.name} itself")
        else:
            self._same_output(candidate, done)
        return not candidate.problem

    def _same_output(self, candidate: Candidate, done: server.Loaded) -> None:
        if self.plan.is_same_output and done.stdout != self.stdout:
            ours, theirs = done.stdout.splitlines(), self.stdout.splitlines()
            line = next(
                (i for i, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1]), min(len(ours), len(theirs))
            )
            candidate.problem = f"its output is not {self.reference.name}'s: line {line + 1} differs"


def _loaded(done: process.Measured) -> server.Loaded:
    figures = done.figures()
    result = {key: figures[key] for key in ("seconds", "cpu_seconds", "rss_peak_kb")}
    # Nothing is quicker than the clock; a ratio needs more than 0.
    result["cpu_seconds"] = max(result["cpu_seconds"], 1e-6)
    result["faults"] = done.faults_minor + done.faults_major
    if done.system_calls is not None:
        result["system_calls"] = done.system_calls
    return server.Loaded(result, done.stdout, done.problem, done.stderr)
