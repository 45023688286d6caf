"""hak VERB in a child of the tests' process, which has imported the lab: Python's start and imports take half a second."""

import contextlib
import importlib
import os
import select
import signal
import sys
import tempfile
import traceback
import types

import lab.__main__


def hak(*words, variables=None, cwd=None, input="", timeout=300, preexec_fn=None):
    """Runs hak WORD... with these variables in its environment: an object with returncode, stdout and stderr."""
    words = list(map(str, words))
    with contextlib.suppress(ImportError):  # `hak nonsense` says so itself
        importlib.import_module(f"lab.verbs.{words[0]}")
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write(input.encode())
        files[0].seek(0)
        temporary = stack.enter_context(tempfile.TemporaryDirectory())
        child = os.fork()
        if child == 0:
            tempfile.tempdir = temporary  # _exit removes nothing
            _be(words, files, variables or {}, cwd, preexec_fn)
        with open(os.pidfd_open(child), "rb", buffering=0) as process:
            is_late = not select.select([process], [], [], timeout)[0]
        if is_late:
            os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert not is_late, f"hak {' '.join(words)}: no end after {timeout} s"
        said = [os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode() for file in files[1:]]
    return types.SimpleNamespace(returncode=status, stdout=said[0], stderr=said[1])


def _be(words, files, variables, cwd, preexec_fn):
    status = 1
    try:
        for number, file in enumerate(files):
            os.dup2(file.fileno(), number)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)
        os.environ.update(variables)
        os.chdir(cwd or os.getcwd())
        if preexec_fn:
            preexec_fn()
        lab.__main__.main(words)
    except SystemExit as ended:
        status = ended.code or 0
    except BaseException:  # noqa: BLE001  # as the interpreter would
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
