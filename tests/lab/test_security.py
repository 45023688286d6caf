"""hak bench security: the counts are those of real runs, unlike each other as the presets are; rows and documents have them;
an allocator on which the programs do not run is said."""

import os
import re
import shutil

import forked
import pytest

from lab.run import process, security
from lab.run.allocators import Allocator
from lab.show import documents
from lab.store import rows


@pytest.fixture(scope="module")
def measured(build, library, tmp_path_factory):
    path = tmp_path_factory.mktemp("security") / "rows.jsonl"
    words = ("--allocators", "hakmem,hakmem-secure", "--lib", f"hakmem={library}", "--lib", f"hakmem-secure={library}")
    done = forked.hak("bench", "security", "--tiny", "--build-dir", build, *words, "--json", path)
    return done, rows.read([path])


def counts(stored, name):
    return next(row.result for row in stored if row.allocator == name and row.work == security.MISUSE)


def test_the_preset_notices_more(measured):
    done, stored = measured
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-1500:]
    ours, secure = counts(stored, "hakmem"), counts(stored, "hakmem-secure")
    assert ours["programs"] == secure["programs"] > 100
    assert 0 < secure["not_caught"] <= 15 < ours["not_caught"] <= 75
    assert secure["without_effect"] > ours["without_effect"]
    assert {row.kind for row in stored} == {"security"}
    assert sum(row.work == "mixed" for row in stored) == 2


def test_documents_have_the_figures(measured, tmp_path):
    _, stored = measured
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "security.md"
    page.write_text("<!-- figures: security -->\n<!-- end figures -->\n")
    documents.fill(tmp_path, stored)
    assert "Not measured" in page.read_text(), "rows of tiny runs are no figures"
    documents.fill(tmp_path, [row.model_copy(update={"is_tiny": False}) for row in stored])
    secure = counts(stored, "hakmem-secure")
    # The rate is that of tiny runs beside other tests: any figure.
    row = rf"\| {secure['not_caught']} of {secure['programs']} \| {secure['without_effect']} \| [0-9.]+ \|"
    assert re.search(row, page.read_text())


def test_what_does_not_run_is_said(build, tmp_path):
    folder = tmp_path / "bin" / "tests"
    folder.mkdir(parents=True)
    shutil.copy(build / "bin" / "measure", tmp_path / "bin")
    program = folder / os.path.basename(security.PROGRAM)
    for script, problem in (("exit 1", "status 1"), ("echo nothing", "it said no counts")):
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        glibc = Allocator("glibc", None)
        assert security.count(str(tmp_path), glibc, process.Links(), 60, {}) == ({}, problem)


def test_wrong_usage(build):
    done = forked.hak("bench", "security", "more", "--build-dir", build)
    assert done.returncode == 2 and "takes no further NAME, not 'more'" in done.stderr
