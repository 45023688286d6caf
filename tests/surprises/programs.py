"""Real programs that would notice: each must do on hakmem what it does on libc's malloc.

    programs.py LIBRARY CASE      CASE: chromium, valgrind, systemd
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from cases import need, skip

LIBRARY, CASE = sys.argv[1:3]
NOBODY = 65534


def run(words, library=None, **more):
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **more.pop("environment", {})}
    if library:
        environment["LD_PRELOAD"] = str(library)
    return subprocess.run(
        words, env=environment, capture_output=True, text=True, timeout=200, stdin=subprocess.DEVNULL, **more
    )


def chromium():
    """Headless, with its sandbox, which no root has."""
    need("chromium")
    as_nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}

    def page(name, library):
        with tempfile.TemporaryDirectory() as home:
            os.chmod(home, 0o777)
            words = ["chromium", "--headless", "--disable-gpu", f"--user-data-dir={home}/{name}", "--dump-dom"]
            text = "data:text/html,<p id=x></p><script>x.textContent = [...Array(100000).keys()].length</script>"
            return run([*words, text], library, environment={"HOME": home}, cwd=home, **as_nobody)

    plain = page("plain", None)
    if "<p id=\"x\">100000</p>" not in plain.stdout:
        skip(f"chromium's sandbox does not run here: {plain.stderr[-200:]}")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        library = shutil.copy(LIBRARY, folder)
        ours = page("ours", library)
    assert ours.stdout == plain.stdout, ours


def valgrind():
    """It replaces malloc, free and realloc, and must not get blocks of those who call them not: ls uses reallocarray."""
    need("valgrind")
    words = ["valgrind", "-q", "--error-exitcode=9", "ls", "-l", "/usr/lib"]
    plain, ours = run(words), run(words, LIBRARY)
    if plain.returncode != 0:
        skip(f"valgrind does not run ls here: {plain.stderr[-200:]}")
    assert ours.returncode == 0, ours.stderr
    assert ours.stdout == plain.stdout, ours.stdout


def systemd():
    """A service whose filter kills for what a small program on libc's malloc does not do."""
    need("systemd-run", "python3")
    grow = "b = [bytes(60000) for _ in range(1100)]; del b; print('grown')"
    words = ["systemd-run", "--quiet", "--wait", "--pipe", "-p", "SystemCallFilter=@default @basic-io @file-system @io-event "]
    words[-1] += "@signal mremap madvise ioctl brk"
    rest = ["python3", "-S", "-c", grow]
    if run([*words, *rest]).returncode != 0:
        skip("systemd-run does not run a filtered service here")
    ours = run([*words, "-p", f"Environment=LD_PRELOAD={pathlib.Path(LIBRARY).resolve()}", *rest])
    assert ours.returncode == 0 and "grown" in ours.stdout, ours


{"chromium": chromium, "valgrind": valgrind, "systemd": systemd}[CASE]()
print(f"{CASE}: ok")
