"""What is in a trace: what its events say, and their sums, batch by batch. Pure."""

from dataclasses import dataclass, field

# Of an event, as the file and libhaktrace.so number them (bench/trace/trace.h).
KINDS = ("malloc", "calloc", "aligned", "free", "realloc")
MALLOC, CALLOC, ALIGNED, FREE, REALLOC = range(len(KINDS))
IMPLIED = 1  # a free that was not recorded: the address was given out again, or an exec ended the heap
REMOTE = 2  # a free or realloc by another thread than the one that made the block or last resized it
STRAY = 4  # made by a realloc of a block from before the recording
NO_SITE = 2**32 - 1
DOUBLINGS = 48  # sizes 2^k .. 2^(k+1) - 1; 0 and 1 are one row


@dataclass
class LargeSite:
    blocks: int = 0
    bytes: int = 0


@dataclass
class Tally:
    """add() takes arrays of lab.store.trace.event_type(), in order."""

    events: int = 0
    by_kind: list[int] = field(default_factory=lambda: [0] * len(KINDS))
    threads: int = 0
    objects: int = 0
    live: int = 0  # bytes, after the last event
    live_peak: int = 0
    live_peak_event: int = 0
    asked: int = 0  # bytes of all blocks made, and of what reallocs added
    remote_frees: int = 0
    last_us: int = 0
    sizes: list[int] = field(default_factory=lambda: [0] * DOUBLINGS)  # blocks made, and results of reallocs
    size_bytes: list[int] = field(default_factory=lambda: [0] * DOUBLINGS)
    sites: dict[int, LargeSite] = field(default_factory=dict)

    def add(self, batch) -> None:
        import numpy

        if not len(batch):
            return
        live = self.live + numpy.cumsum(batch["delta"])
        highest = int(live.argmax())
        if live[highest] > self.live_peak:
            self.live_peak, self.live_peak_event = int(live[highest]), self.events + highest
        self.live = int(live[-1])
        self.events += len(batch)
        self.last_us = int(batch["time_us"][-1])
        self.threads = max(self.threads, int(batch["thread"].max()) + 1)
        self.objects = max(self.objects, int(batch["object"].max()) + 1)
        counts = numpy.bincount(batch["kind"], minlength=len(KINDS))
        self.by_kind = [have + int(more) for have, more in zip(self.by_kind, counts, strict=True)]
        is_free = batch["kind"] == FREE
        self.remote_frees += int(numpy.count_nonzero(is_free & (batch["flags"] & REMOTE != 0)))
        self.asked += int(batch["delta"][batch["delta"] > 0].sum())
        made = batch[~is_free]
        doubling = numpy.frexp(made["size"].astype(float))[1] - 1
        doubling = numpy.clip(doubling, 0, DOUBLINGS - 1)
        blocks = numpy.bincount(doubling, minlength=DOUBLINGS)
        total = numpy.bincount(doubling, weights=made["size"].astype(float), minlength=DOUBLINGS)
        self.sizes = [have + int(more) for have, more in zip(self.sizes, blocks, strict=True)]
        self.size_bytes = [have + int(more) for have, more in zip(self.size_bytes, total, strict=True)]
        large = made[made["site"] != NO_SITE]
        rows, inverse = numpy.unique(large["site"], return_inverse=True)
        for row, count, size in zip(rows, numpy.bincount(inverse, minlength=len(rows)),
                                    numpy.bincount(inverse, large["size"], minlength=len(rows)), strict=True):  # fmt: skip
            site = self.sites.setdefault(int(row), LargeSite())
            site.blocks += int(count)
            site.bytes += int(size)

    @property
    def frees(self) -> int:
        return self.by_kind[FREE]

    @property
    def remote_share(self) -> float:
        return self.remote_frees / self.frees if self.frees else 0.0

    def top_sites(self, count: int) -> list[tuple[int, LargeSite]]:
        return sorted(self.sites.items(), key=lambda item: -item[1].bytes)[:count]


def tally(batches) -> Tally:
    made = Tally()
    for batch in batches:
        made.add(batch)
    return made


def smear(live: list[float], resident: list[float]) -> float | None:
    """Resident memory over live bytes, both as means over the samples; None without samples or live bytes."""
    return sum(resident) / sum(live) if live and sum(live) else None
