"""Runs a program of the user's in place of the shell's: it keeps its input, output and place in the foreground, and
signals that this process gets are its."""

import os
import signal
from collections.abc import Mapping, Sequence

NOT_EXECUTABLE = 126  # exit status, as of shells
PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
LEFT_TO_PROGRAM = (signal.SIGINT, signal.SIGQUIT)  # the terminal sends them to both


def run(file: str, words: Sequence[str], environment: Mapping[str, str], pid_variable: str = "") -> tuple[int, int]:
    """The program's process id and wait status. It finds its process id in the variable of this name."""
    environment = dict(environment)
    # What comes before it can be passed on waits; in the child, what comes before exec is as it is after it.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (*PASSED_ON, *LEFT_TO_PROGRAM))
    child = os.fork()
    if child == 0:
        try:
            for number in (*PASSED_ON, *LEFT_TO_PROGRAM):
                if callable(signal.getsignal(number)):
                    signal.signal(number, signal.SIG_DFL)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and an exec keeps that
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            if pid_variable:
                environment[pid_variable] = str(os.getpid())
            os.execve(file, list(words), environment)
        except OSError as error:
            os.write(2, f"hak: {words[0]}: {error.strerror}\n".encode())
        finally:
            os._exit(NOT_EXECUTABLE)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in LEFT_TO_PROGRAM}
    before |= {number: signal.signal(number, lambda got, _frame: os.kill(child, got)) for number in PASSED_ON}
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # its id is its own while signals are passed on to it
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return child, os.waitpid(child, 0)[1]


def end_as(status: int) -> int:
    """The exit status to end with; does not return if the program died of a signal."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code
