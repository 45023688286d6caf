"""python3's own test modules for json, pickle, threading and subprocess: the same tests pass as on libc."""
import pathlib
import re
import subprocess
import sys
import tempfile

import app

MODULES = ["test_json", "test_pickle", "test_threading", "test_subprocess"]
# The tests of ProcessTestCase with select in the place of poll.
IGNORED = ["-i", "ProcessTestCaseNoPoll"]


def interpreter():
    for python in (sys.executable, "/usr/bin/python3", "python3"):
        probe = subprocess.run([python, "-c", "import test.test_json"], capture_output=True, check=False)
        if probe.returncode == 0:
            return python
    app.skip("no python3 with its test modules (Debian package libpython3-testsuite)")


def bare(python, folder):
    """The same interpreter in an environment without packages. What a .pth file of the system's asks for would take most
    of the time of the hundreds of short processes."""
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    return pathlib.Path(folder, "bin", "python3")


def outcome(python, on_hakmem, modules):
    """Each test's name with what became of it, and the whole run."""
    result = app.run(
        [python, "-m", "test", "-v", "-j2", *IGNORED, *modules],
        on_hakmem,
        only_first=True,
        extra={"PYTHONMALLOC": "malloc"},
        timeout=500,
    )
    text = (result.stdout + result.stderr).decode(errors="replace")
    tests = re.findall(r"^(test\w+) \(([\w.<>]+)\)(?:.*\n)??.*?\.\.\. (ok|FAIL|ERROR|skipped|expected failure)", text, re.M)
    return {f"{where}.{name}": what for name, where, what in tests}, result, text


def passed(results):
    return {name for name, what in results.items() if what == "ok"}


def test():
    with tempfile.TemporaryDirectory() as folder:
        return compare(bare(interpreter(), folder))


def compare(python):
    # PYTHONMALLOC=malloc: every object of the interpreter comes from malloc, not only those above 512 bytes.
    ours, result, text = outcome(python, True, MODULES)
    if result.code != 0:  # what fails must fail on libc, too, unless it passes when it is tried again
        listed = re.search(r"^\d+ tests? failed:\n((?: +\w.*\n)+)", text, re.M)
        app.check(listed, f"status {result.code}: {text[-1500:]}")
        modules = listed[1].split()
        plain, _, _ = outcome(python, False, modules)
        missing = passed(plain) - passed(ours)
        if missing:
            missing -= passed(outcome(python, True, modules)[0])
        app.check(plain and not missing, f"status {result.code}, not passed twice: {missing} {text[-1500:]}")
    app.check(len(ours) > 500, f"only {len(ours)} tests ran")
    app.proof(result, 4 << 20)
    return f"python: ok ({len(ours)} tests)"


if __name__ == "__main__":
    app.main(test)
