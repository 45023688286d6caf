"""Fixtures of the lab's tests: python3 -m pytest tests/lab --build FOLDER [--library FILE]."""

import pathlib
import signal
import sys

import pytest

TREE = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TREE / folder) for folder in (".", "tests", "tests/profile")]
signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background a shell ignores it, for children, too
pytest.register_assert_rewrite("made_browser", "made_profile")  # they are imported and are plugins


def pytest_addoption(parser):
    parser.addoption("--build", type=pathlib.Path, default=TREE / "build" / "release", help="where bin/ and lib/ are")
    parser.addoption("--library", type=pathlib.Path, help="libhakmem.so")


@pytest.fixture(scope="session")
def tree() -> pathlib.Path:
    return TREE


@pytest.fixture(scope="session")
def build(request) -> pathlib.Path:
    folder = request.config.getoption("--build").resolve()
    assert (folder / "bin" / "measure").exists(), f"{folder} is no build of hakmem"
    return folder


@pytest.fixture(scope="session")
def library(request, build) -> pathlib.Path:
    return (request.config.getoption("--library") or build / "lib" / "libhakmem.so").resolve()


@pytest.fixture(scope="session")
def plugins(build) -> pathlib.Path:
    """Preloads with one fault each, made by the build."""
    return build / "bin" / "tests" / "plugins"


@pytest.fixture
def hangups():
    """What the test starts hears SIGHUP. Under nohup it is ignored, for children, too, and the lab leaves that so."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def no_peers(monkeypatch, tmp_path):
    """To the lab, no peer is installed."""
    from lab.run import allocators

    (tmp_path / "hak").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "hak").chmod(0o755)
    monkeypatch.setattr(allocators, "ROOT", tmp_path)


@pytest.fixture
def measuring(build):
    """Makes a lab.run.rounds.Rounds: one run of almost nothing, but for what is given."""
    from lab.run import rounds

    def make(**changes):
        fields = {"runs": 1, "is_tiny": True, "seed": 1, "cpu": None, "timeout": 60, "is_cpu_time": False}
        return rounds.Rounds(str(build), **fields | {"settings": {}} | changes)

    return make
