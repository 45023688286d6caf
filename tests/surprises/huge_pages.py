"""A program's peak RSS is the same, whatever the system's setting of transparent huge pages is: as root, the setting is
switched, and put back also when this is killed. Programs that stay below what the huge-page policy asks for.

Positive control: a preload that keeps hakmem's refusals (MADV_NOHUGEPAGE) from the kernel. Where that changes nothing,
the kernel gives no huge pages here, and the test is skipped.

    huge_pages.py LIBRARY SILENT_PRELOAD FOLDER_OF_BENCHMARKS
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2])]
import cases  # noqa: E402

from lab.run import huge_pages  # noqa: E402

RUNS = 3
HUGE_KIB = 1024  # half a huge page. Threads that take turns otherwise, and RSS that is counted in batches, are 600 KiB
ROWS = "BEGIN;CREATE TABLE t(a INTEGER PRIMARY KEY,b TEXT);WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 \
FROM c WHERE n<20000) INSERT INTO t SELECT n,hex(n*n)||'some words' FROM c;COMMIT;SELECT sum(length(b)) FROM t;"


def peak_kib(build, words, preload):
    """Of the program, started by one that is smaller than it."""
    reading, writing = os.pipe()
    own = cases.environment() | {"HAKMEM_STATS": "off"}
    command = [str(build / "measure"), "--env", f"LD_PRELOAD={preload}", str(writing), *words]
    subprocess.run(command, env=own, check=True, pass_fds=(writing,), stdout=subprocess.DEVNULL)
    os.close(writing)
    with open(reading, encoding="utf-8") as report:
        return json.loads(report.readline())["rss_peak_kb"]


def peaks(build, works, preload):
    """name -> the median under each setting."""
    found = {name: {} for name in works}
    for setting in huge_pages.WORDS:
        with huge_pages.switched(setting):
            for name, words in works.items():
                found[name][setting] = statistics.median(peak_kib(build, words, preload) for _ in range(RUNS))
    return found


def judge(found):
    for name, by_setting in found.items():
        assert by_setting["always"] <= min(by_setting.values()) + HUGE_KIB, f"{name}: {by_setting} KiB"


def main():
    library, silent, build = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    if why := huge_pages.missing():
        cases.skip(why)
    works = {
        "nothing": ["/bin/true"],
        "mixed": [str(build / "random_mixed"), "500000", "400", "1"],
        "threads": [str(build / "larson"), "2", "100", "5", "1"],
        "growing": [str(build / "churn"), "2000", "4", "103", "40000", "1"],
    }
    if shutil.which("sqlite3"):
        works["sqlite"] = ["sqlite3", ":memory:", ROWS]
    try:
        lies = peaks(build, works, f"{silent}:{library}")
    except huge_pages.Refused as refused:
        cases.skip(str(refused))
    print("without refusals:", lies)
    if max(found["always"] - found["never"] for found in lies.values()) < HUGE_KIB:
        cases.skip("the kernel gives no huge pages here")
    cases.refuses(AssertionError, judge, lies)
    found = peaks(build, works, library)
    print("hakmem:", found)
    judge(found)


main()
