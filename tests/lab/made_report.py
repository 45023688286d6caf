"""A whole scorecard of made rows, once for all test modules that name this one in pytest_plugins."""

import json
import time

import made_rows
import pytest
from made_rows import HOSTILE, report

from lab.run.workloads import ROWS


@pytest.fixture(scope="session")
def made():
    """A scorecard with latencies, soaks and hostile names; of most groups two workloads, as more look the same."""
    groups, kept = {}, set()
    for work, known in ROWS.items():
        groups[known.group] = groups.get(known.group, 0) + 1
        if groups[known.group] <= 2 or known.group in ("sizes", "latency"):
            kept.add(work)
    rows = [row for row in made_rows.whole() if row["work"] in kept] + made_rows.latency_rows() + made_rows.soak_rows()
    for place, name in enumerate(HOSTILE):
        rows += made_rows.series("fixed-16", name, 9e7, n=11, seed=place)
        rows += made_rows.series(name, "hakmem") + made_rows.series(name, "glibc", 8e7)
        rows += made_rows.soak_rows(work=name, allocators=(name,))
    return rows


@pytest.fixture(scope="session")
def folder(made, tmp_path_factory, tree):
    found = tmp_path_factory.mktemp("report")
    rows = made_rows.save(found / "made.jsonl", made)
    soak = found / "of <others>.csv"
    soak.write_text("time_s,ops_per_s,rss_kb\n" + "".join(f"{i},{1e6 + i},{2000 + i % 7}\n" for i in range(1, 80)))
    began = time.monotonic()
    done = report(tree, "--rows", rows, "--soak", soak, "--out", found / "out")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [
        str(found / "out" / name) for name in ("index.html", "scorecard.md", "scorecard.json")
    ]
    print(f"{len(made)} rows in {time.monotonic() - began:.1f} s")
    return found / "out"


@pytest.fixture(scope="session")
def card(folder):
    return json.loads((folder / "scorecard.json").read_text())
