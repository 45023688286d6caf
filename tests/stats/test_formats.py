"""The reports, read by others: JSON by its published schema, OpenMetrics by Prometheus' own parsers, files as they lie.

The environment says what is tested: STATS_TOOL, the path of hakmem-stats; STATS_LIBRARY, that of libhakmem.so.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import time

import jsonschema
import prometheus_client.openmetrics.parser as openmetrics
import prometheus_client.parser as textfile
import pytest

TOOL, LIBRARY = os.environ["STATS_TOOL"], os.environ["STATS_LIBRARY"]
ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs/stats.schema.json").read_text())
# A program with small and large blocks; on hakmem, pymalloc is out of the way.
PROGRAM = [sys.executable, "-c", "kept = [bytes(i * 100) for i in range(2000)] + [bytearray(1 << 22)]"]


def run(command, folder=None, **settings):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_")}
    environment = clean | {"LD_PRELOAD": LIBRARY, "PYTHONMALLOC": "malloc"} | settings
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=folder)


def tool(*arguments, check=False, **options):
    return subprocess.run([TOOL, *arguments], check=check, capture_output=True, text=True, **options)


@pytest.fixture(scope="module")
def report():
    return run(PROGRAM, HAKMEM_STATS="json").stderr.splitlines()[-1] + "\n"


@pytest.fixture(scope="module")
def numbers(report):
    return json.loads(report)


@pytest.fixture
def report_file(report, tmp_path):
    path = tmp_path / "report.json"
    path.write_text("words of the program\n" + report)
    return path


def fields(properties):
    return {name: field for name, field in properties.items() if "x-kind" in field}


def test_a_summary_needs_no_memory():
    words = "import resource; resource.setrlimit(resource.RLIMIT_AS, (1, 1))"
    done = run([sys.executable, "-c", words], HAKMEM_STATS="text")
    assert "hakmem: system calls" in done.stderr and "no memory" not in done.stderr


def test_json_is_by_the_schema(numbers):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(numbers, SCHEMA)
    assert set(numbers) == set(SCHEMA["properties"])
    assert all(set(row) == set(SCHEMA["properties"]["classes"]["items"]["properties"]) for row in numbers["classes"])
    assert len(numbers["classes"]) > 20 and numbers["heap_peak_bytes"] >= 1 << 22


@pytest.mark.parametrize(
    "change", [{"schema": 1}, {"pid": 0}, {"live_bytes": -1}, {"calls": "7"}, {"hakmem": "1"}, {"classes": [{}]}]
)
def test_the_schema_refuses_what_is_wrong(numbers, change):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(numbers | change, SCHEMA)


@pytest.mark.parametrize("name", ["moving_bytes", "rss_bytes", "schema", "classes"])
def test_the_schema_refuses_what_is_missing(numbers, name):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({key: value for key, value in numbers.items() if key != name}, SCHEMA)


def test_the_report_adds_up(numbers):
    page = (ROOT / "docs/stats.md").read_text()
    parts = page.split("## The parts of memory")[1].split("\n## ")[0]
    names = re.findall(r"^\| `(\w+)` \|", parts, re.MULTILINE)
    assert len(names) == 11
    assert abs(sum(numbers[name] for name in names) - numbers["mapped_bytes"]) <= numbers["moving_bytes"]
    slabs = sum(row["slab_bytes"] for row in numbers["classes"])
    assert slabs == numbers["heap_bytes"] - numbers["large_bytes"]


def test_the_table_is_whole():
    """Each name once, each with a sentence; the units are in the names; the page has each row."""
    of_classes = fields(SCHEMA["properties"]["classes"]["items"]["properties"])
    rows = [(name, row, "") for name, row in fields(SCHEMA["properties"]).items()]
    rows += [(name, row, "CLASS") for name, row in of_classes.items()]
    header = (ROOT / "include/hakmem/stats.h").read_text()
    row = r"^  ROW\((\w+), (\w+), (?:GAUGE|COUNTER), \w+,(?: |[ \\\n]+)((?:\"[^\"]*\"[ \\\n]*)+)\)"
    written = [
        (group, name, "".join(re.findall(r'"([^"]*)"', strings)))
        for group, name, strings in re.findall(row, header, re.MULTILINE)
    ]
    keys = [(name, group if group == "CLASS" else "") for group, name, _ in written]
    assert sorted(keys) == sorted(set(keys))
    assert set(keys) == {(name, where) for name, _, where in rows} | {("block_bytes", "CLASS")}
    page = (ROOT / "docs/stats.md").read_text()
    for _, name, sentence in written:
        assert len(re.findall(rf"^\| `{name}` \| \w+ \| \w+ \| {re.escape(sentence)} \|$", page, re.MULTILINE)) == 1, (
            name
        )
        assert sentence.endswith(".") and "\\" not in sentence and "|" not in sentence, sentence
    for name, row, _ in rows:
        assert (row["x-unit"] == "bytes") == name.endswith("_bytes"), name
        assert not name.endswith(("_total", "_info", "_count_total", "_created", "_bucket")), name


def samples(parser, text):
    return {
        (sample.name, sample.labels.get("block_bytes")): sample
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


def metric_values(numbers):
    """What the JSON says, by the names of OpenMetrics."""
    properties = SCHEMA["properties"]
    for name, row in fields(properties).items():
        yield (f"hakmem_{name}" + ("_total" if row["x-kind"] == "counter" else ""), None), numbers[name]
    for row in numbers["classes"]:
        for name, about in fields(properties["classes"]["items"]["properties"]).items():
            total = "_total" if about["x-kind"] == "counter" else ""
            yield (f"hakmem_class_{name}{total}", str(row["block_bytes"])), row[name]
    yield ("hakmem_build_info", None), 1


@pytest.mark.parametrize("parser", [openmetrics, textfile], ids=["openmetrics", "textfile"])
def test_metrics_are_the_json(parser, numbers, report_file):
    text = tool("--openmetrics", report_file, check=True).stdout
    found = samples(parser, text)
    assert {key: sample.value for key, sample in found.items()} == dict(metric_values(numbers))
    assert {sample.labels["pid"] for sample in found.values()} == {str(numbers["pid"])}


def test_the_families_have_type_unit_and_help(report_file):
    text = tool("--openmetrics", report_file, check=True).stdout
    for family in openmetrics.text_string_to_metric_families(text):
        if family.name == "hakmem_build_info":
            continue
        name = family.name.removeprefix("hakmem_")
        of_classes = SCHEMA["properties"]["classes"]["items"]["properties"]
        row = of_classes[name.removeprefix("class_")] if name.startswith("class_") else SCHEMA["properties"][name]
        assert (family.type, family.documentation) == (row["x-kind"], row["description"])
        assert family.unit == ("bytes" if row["x-unit"] == "bytes" else "")


@pytest.mark.parametrize("old, altered", [
    ("# EOF\n", ""),
    ("hakmem_refills_total{", "hakmem_refills{"),
    ('"} 1\n', "} 1\n"),
    ("# UNIT hakmem_live_bytes bytes", "# UNIT hakmem_live_bytes blocks"),
])  # fmt: skip
def test_the_parser_refuses_what_is_wrong(report_file, old, altered):
    text = tool("--openmetrics", report_file, check=True).stdout
    assert old in text
    with pytest.raises((ValueError, KeyError)):
        list(openmetrics.text_string_to_metric_families(text.replace(old, altered, 1)))


def test_each_process_prints_what_the_parser_reads():
    text = run(PROGRAM, HAKMEM_STATS="openmetrics").stderr
    found = samples(openmetrics, text)
    assert found["hakmem_heap_peak_bytes", None].value >= 1 << 22


def test_json_comes_back_as_it_was(report, report_file):
    assert tool("--json", report_file, check=True).stdout == report
    assert tool("--json", "-", check=True, input=report).stdout == report


@pytest.mark.parametrize("before", [b"zeros\0\0\n", b"done: 100 %", b'{"hak{"hakmem', b"x" * (65 << 20)])
def test_what_else_a_program_said(report, tmp_path, before):
    """A log may be long, have zero bytes, and end without a line."""
    (tmp_path / "log").write_bytes(before + report.encode() + b"bye\n")
    assert tool("--json", str(tmp_path / "log"), check=True).stdout == report


def test_text(numbers, report_file):
    for arguments in (["--text"], []):
        text = tool(*arguments, report_file, check=True).stdout
        assert f"system calls {numbers['calls']} (map {numbers['calls_map']}," in text
        assert f"refills {numbers['refills']}, flushes {numbers['flushes']}" in text


@pytest.mark.parametrize("damage, sentence", [
    (lambda text: "nothing\n", "there is no report in it"),
    (lambda text: text[:-300], "the report is damaged"),
    (lambda text: text.replace(":", ": ", 3), "the report is damaged"),
    (lambda text: text.replace('"pid":', '"pid":-'), "the report is damaged"),
    (lambda text: text.replace('"pid":', '"pid":99999999999999999999999'), "the report is damaged"),
    (lambda text: text.replace('"schema":2', '"schema":1'), "another schema"),
    (lambda text: text.replace('"calls_map"', '"calls_mop"'), "the report has no 'calls_map'"),
    (lambda text: text.replace('"slab_count"', '"slab_cont"', 1), "the report has no 'slab_count'"),
    (lambda text: text.replace('"classes":[', '"classes":[' + "{}," * 200), "the report is damaged"),
])  # fmt: skip
def test_the_tool_refuses_what_is_wrong(report, tmp_path, damage, sentence):
    path = tmp_path / "damaged.json"
    path.write_text(damage(report))
    result = tool(path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"hakmem-stats: {path}: ") and sentence in result.stderr, result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [[], ["--wrong", "x"], ["x", "y"], ["--text"], ["--schema", "x"], ["/nowhere"], ["/"]]
)
def test_the_tool_refuses_other_arguments(arguments):
    result = tool(*arguments)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)


def test_the_file_is_openmetrics(tmp_path):
    result = run(PROGRAM, folder=tmp_path, HAKMEM_STATS_FILE="a%%b.%p.prom")
    (path,) = tmp_path.iterdir()
    found = samples(textfile, path.read_text())
    assert path.name == f"a%b.{found['hakmem_build_info', None].labels['pid']}.prom"
    assert result.stderr == ""


def test_the_file_has_the_form_that_is_asked_for(tmp_path):
    path = tmp_path / "report"
    run(PROGRAM, HAKMEM_STATS="json", HAKMEM_STATS_FILE=str(path))
    jsonschema.validate(json.loads(path.read_text()), SCHEMA)
    run(PROGRAM, HAKMEM_STATS="text", HAKMEM_STATS_FILE=str(path))
    assert path.read_text().startswith("hakmem: peak RSS ")
    path.unlink()
    run(PROGRAM, HAKMEM_STATS="off", HAKMEM_STATS_FILE=str(path))
    run(PROGRAM, HAKMEM_STATS_PID="1", HAKMEM_STATS_FILE=str(path))
    assert not path.exists()


def test_the_file_is_whole_at_any_time(tmp_path):
    """Whoever reads while processes end one after another finds one report, whole."""
    path = tmp_path / "report.prom"
    loop = ["/bin/sh", "-c", "while [ ! -e stop ]; do /bin/true; done; rm stop"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_")}
    writer = subprocess.Popen(loop, env=clean | {"LD_PRELOAD": LIBRARY, "HAKMEM_STATS_FILE": str(path)}, cwd=tmp_path)
    pids, deadline = set(), time.monotonic() + 200
    while len(pids) < 8 and time.monotonic() < deadline:
        if path.exists():
            found = samples(openmetrics, path.read_text())
            pids.add(found["hakmem_build_info", None].labels["pid"])
    (tmp_path / "stop").touch()
    assert writer.wait() == 0 and len(pids) == 8
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_file_that_cannot_be_written_is_said(tmp_path):
    for path, reason in [
        (tmp_path, "it is no regular file"),
        (tmp_path / "no/file", "there is no such file or folder"),
    ]:
        result = run(PROGRAM, HAKMEM_STATS_FILE=str(path))
        assert result.stderr == f"hakmem: {path}: {reason}; no summary is written\n"
    assert list(tmp_path.iterdir()) == []
