"""A model of many cores: how much of N cores a workload gets, by discrete events.

Each core has one thread. A thread works alone until its next use of a shared thing, then waits for its turn. How often a
thing is used comes from the library's counters, so from few cores; the model assumes that a thread's work does not change
with their number. How long a use lasts is assumed: HOLD_NS of each thing, and LINE_NS more if the last to use it was
another core, for the cache line's way (docs/decisions/0043).
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import simpy

CORES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
LINE_NS = 100.0
USES = 120_000  # simulated uses of shared things, of all threads together
USES_OF_A_THREAD = 200  # at least

ALL = "process"  # one for all threads
OWN = "own pool"  # threads have a pool each while there is at most one for each core
OTHER = "other pool"  # of another thread, drawn for each use


@dataclass(frozen=True)
class Shared:
    """What threads contend for."""

    name: str
    scope: str
    uses: Mapping[str, float]  # of each event that the library counts
    hold_ns: float


SHARED = (
    Shared("pool's lock", OWN, {"refills": 1, "flushes": 1}, 250),
    Shared("pool's inbox", OTHER, {"envelopes_sent": 1}, 60),
    Shared("pool's emptied envelopes", OTHER, {"envelopes_sent": 1}, 30),
    Shared(
        "sums of memory held", ALL, {"slabs_opened": 2, "slabs_closed": 2, "large_allocations": 2, "large_frees": 2}, 10
    ),
    Shared("extents' lock", ALL, {"slabs_opened": 1, "slabs_closed": 1}, 150),
    Shared("BigCache's lock", ALL, {"cache_puts": 1, "cache_hits": 1, "cache_misses": 1}, 80),
    Shared("metadata's lock", ALL, {"bin_growths": 2, "bin_shrinks": 2}, 60),
    Shared("registry's lock", ALL, {"heaps_adopted": 1, "heaps_swept": 1}, 300),
)


@dataclass(frozen=True)
class Work:
    name: str
    op_ns: float  # CPU time of an operation
    counters: Mapping[str, float]  # events of one operation

    def uses(self, shared: Shared) -> float:
        return sum(self.counters.get(name, 0) * times for name, times in shared.uses.items())


@dataclass(frozen=True)
class Scaled:
    cores: int
    efficiency: float  # operations a second, of what as many single cores would do
    busiest: str
    busy: float  # part of the time in which the busiest thing was used


class _Thing:
    def __init__(self, env: simpy.Environment, shared: Shared):
        self.shared, self.turns, self.last, self.busy_ns = shared, simpy.Resource(env), None, 0.0


class _Simulation:
    def __init__(self, work: Work, cores: int, shared: Sequence[Shared]):
        self.env, self.draw = simpy.Environment(), random.Random(1)
        self.shared, self.cores, self.done = shared, cores, 0.0
        self.rates = [work.uses(each) for each in shared]
        held_ns = sum(rate * each.hold_ns for rate, each in zip(self.rates, shared, strict=True))
        self.alone_ns = max(work.op_ns - held_ns, 1.0)
        self.places = [{each.name: _Thing(self.env, each) for each in shared} for _ in range(cores)]

    def place(self, me: int, scope: str) -> int:
        if scope == OTHER and self.cores > 1:
            return (me + self.draw.randrange(1, self.cores)) % self.cores
        return 0 if scope == ALL else me

    def thread(self, me: int):
        total = sum(self.rates)
        while True:
            operations = self.draw.expovariate(total)
            yield self.env.timeout(operations * self.alone_ns)
            self.done += operations
            (each,) = self.draw.choices(self.shared, self.rates)
            thing = self.places[self.place(me, each.scope)][each.name]
            with thing.turns.request() as turn:
                yield turn
                used_ns = each.hold_ns + (LINE_NS if thing.last not in (None, me) else 0)
                thing.last = me
                thing.busy_ns += used_ns
                yield self.env.timeout(used_ns)

    def run(self, uses: int) -> tuple[float, str, float]:
        """Operations a nanosecond; the busiest thing and its part of the time."""
        for me in range(self.cores):
            self.env.process(self.thread(me))
        self.env.run(until=self.alone_ns / sum(self.rates) * max(uses / self.cores, USES_OF_A_THREAD))
        busiest = max((thing for place in self.places for thing in place.values()), key=lambda thing: thing.busy_ns)
        return self.done / self.env.now, busiest.shared.name, min(busiest.busy_ns / self.env.now, 1.0)


def scaled(
    work: Work, cores: Sequence[int] = CORES, shared: Sequence[Shared] = SHARED, uses: int = USES
) -> list[Scaled]:
    """None of a work that uses nothing shared."""
    used = [each for each in shared if work.uses(each) > 0]
    if not used:
        return []
    one, *_ = _Simulation(work, 1, used).run(uses)
    found = []
    for count in cores:
        rate, busiest, busy = _Simulation(work, count, used).run(uses)
        found.append(Scaled(count, rate / (one * count), busiest, busy))
    return found
