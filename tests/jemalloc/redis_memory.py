"""redis-server, which is linked with jemalloc and asks it for figures: on libhakmem-jemalloc.so they are hakmem's."""
import re
import tempfile

import app
from redis import Server


def figures(server):
    info = server.ask("INFO", "memory")
    return {name: int(value) for name, value in re.findall(r"^(\w+):(\d+)\s*$", info, re.M)}


def fits(now):
    """The figures are an allocator's that holds what redis says that it uses."""
    used, allocated = now["used_memory"], now["allocator_allocated"]
    return 0.8 * used < allocated < 1.5 * used and allocated <= now["allocator_active"] <= now["allocator_resident"]


def figures_when(server, holds):
    """Redis asks for the allocator's figures every 100 ms."""
    def found():
        now = figures(server)
        assert holds(now), now
        return now

    return app.cases.until(found, AssertionError)


def test():
    app.need("redis-server", "redis-cli")
    with tempfile.TemporaryDirectory() as folder:
        server = Server(folder, True)
        server.ask("DEBUG", "POPULATE", "100000", "key", "200")
        full = figures_when(server, lambda now: now["used_memory"] > 25e6 and fits(now))
        words = server.ask("MEMORY", "MALLOC-STATS")
        app.check("Version: \"5.3.0-hakmem\"" in words and "Allocated: " in words, f"MALLOC-STATS: {words[:200]}")
        server.ask("FLUSHALL", "SYNC")
        app.check(server.ask("MEMORY", "PURGE") == "OK", "MEMORY PURGE")
        empty = figures_when(server, lambda now: now["allocator_resident"] < full["allocator_resident"] / 3)
        app.check(fits(empty) or empty["used_memory"] < 5e6, f"figures of an empty server: {empty}")
        result = server.close()
        app.check(result.code == 0, f"the server ended with {result.code}: {result.stderr[-1000:]!r}")
        app.proof(result, 20 << 20)
    # The control: redis's own jemalloc is not taken for hakmem.
    with tempfile.TemporaryDirectory() as folder:
        server = Server(folder, False)
        app.check("hakmem" not in server.ask("MEMORY", "MALLOC-STATS"), "the control runs on hakmem")
        server.close()
    return f"redis: ok ({full['allocator_allocated'] >> 20} MiB allocated, {full['used_memory'] >> 20} MiB used)"


if __name__ == "__main__":
    app.main(test)
