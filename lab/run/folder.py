"""Folders of the lab below TMPDIR. The next run removes those of runs that were killed."""

import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile
import time
import weakref

PREFIX = "hakmem-run-"
UNLOCKED_S = 60  # longer than a folder takes to be locked


class Folder(tempfile.TemporaryDirectory):
    """Locked while it exists. It goes with this object or process."""

    def __init__(self):
        super().__init__(prefix=PREFIX)
        lock = os.open(self.name, os.O_RDONLY)
        weakref.finalize(self, os.close, lock)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_SH)
        _remove_unlocked(pathlib.Path(self.name).parent)


def _remove_unlocked(where: pathlib.Path) -> None:
    for path in where.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or removed meanwhile
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                about = os.fstat(lock)
                if about.st_uid == os.geteuid() and time.time() - about.st_mtime > UNLOCKED_S:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
