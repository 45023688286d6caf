"""The memory allocator hakmem, seen from a Python program that runs on it.

Start the program with `hakmem run -- python app.py`. PYTHONMALLOC=malloc lets hakmem serve Python's small objects, too.
Everything but active() raises NotLoaded in a program that was started otherwise.
"""

import ctypes
import os

from . import rows

__all__ = ["NotLoaded", "active", "class_stats", "option", "process_stats", "profile_dump", "profile_start"]
__all__ += ["profile_stop", "set_option", "stats", "trim", "version"]

CLASSES_MAX = 107  # HAK_STATS_CLASSES
OPTION_BYTES_MAX = 4096  # a path


class NotLoaded(RuntimeError):
    """malloc of this process is not hakmem's, or is that of another version."""


def _struct(name, names):
    return type(name, (ctypes.Structure,), {"_fields_": [(field, ctypes.c_uint64) for field in names]})


_Stats = _struct("_Stats", rows.STATS)
_ProcessStats = _struct("_ProcessStats", rows.PROCESS_STATS)
_ClassStats = _struct("_ClassStats", rows.CLASS_STATS)
_process = ctypes.CDLL(None)


def _function(name, result, *arguments):
    try:
        function = getattr(_process, name)
    except AttributeError:
        raise NotLoaded("this process does not run on hakmem; start it with: hakmem run -- python ...") from None
    function.restype = result
    function.argtypes = arguments
    return function


def _values(struct):
    return {name: getattr(struct, name) for name, _ in struct._fields_}


def _checked(error):
    """The functions of hakmem return an errno."""
    if error:
        raise OSError(error, os.strerror(error))


def version():
    """The version and the build: "hakmem 0.1.0 (...)"."""
    return _function("hak_version", ctypes.c_char_p)().decode()


def active():
    """Whether malloc of this process is hakmem's, of this package's version."""
    try:
        _same_version()
    except NotLoaded:
        return False
    return True


def _same_version():
    """The figures are read by position."""
    if version().split()[1] != rows.VERSION:
        raise NotLoaded(f"this process runs on {version()}, this package is of {rows.VERSION}")


def stats():
    """What the allocator holds and has done, by name (docs/stats.md)."""
    _same_version()
    out = _Stats()
    _checked(_function("hak_stats_get", ctypes.c_int, ctypes.POINTER(_Stats))(ctypes.byref(out)))
    return _values(out)


def process_stats():
    """The process as the kernel sees it."""
    _same_version()
    out = _ProcessStats()
    _function("hak_process_stats_get", None, ctypes.POINTER(_ProcessStats))(ctypes.byref(out))
    return _values(out)


def class_stats():
    """The size classes that have slabs, the smallest first."""
    _same_version()
    out = (_ClassStats * CLASSES_MAX)()
    get = _function("hak_stats_classes_get", ctypes.c_size_t, ctypes.POINTER(_ClassStats), ctypes.c_size_t)
    return [_values(out[i]) for i in range(get(out, CLASSES_MAX))]


def trim(keep_bytes=0):
    """Gives free memory back to the kernel but for about keep_bytes; returns whether there was any."""
    return bool(_function("hak_trim", ctypes.c_int, ctypes.c_size_t)(keep_bytes))


def option(name):
    """The value of an option in force (docs/options.md)."""
    value = ctypes.create_string_buffer(OPTION_BYTES_MAX)
    get = _function("hak_option_get", ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
    _checked(get(name.encode(), value, OPTION_BYTES_MAX))
    return value.value.decode()


def set_option(name, value):
    """Sets an option; None returns it to the preset's value."""
    set_ = _function("hak_option_set", ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)
    _checked(set_(name.encode(), None if value is None else str(value).encode()))


def profile_start(interval_bytes=512 << 10):
    """Begins a heap profile, with one sample for each interval_bytes; 1: every allocation."""
    _checked(_function("hak_profile_start", ctypes.c_int, ctypes.c_size_t)(interval_bytes))


def profile_dump(path):
    """Writes the heap profile to a file for pprof."""
    error = _function("hak_profile_dump", ctypes.c_int, ctypes.c_char_p)(os.fsencode(path))
    if error:
        raise OSError(error, os.strerror(error), os.fspath(path))


def profile_stop():
    """Ends the sampling; what was sampled can still be written."""
    _checked(_function("hak_profile_stop", ctypes.c_int)())
