"""The memory allocator hakmem, seen from a Python program that runs on it.

Start the program with `hakmem run -- python app.py`. PYTHONMALLOC=malloc lets hakmem serve Python's small objects, too.
Everything but active() raises NotLoaded in a program that was started otherwise.
"""

import ctypes
import errno
import os

from . import rows

__all__ = ["NotLoaded", "active", "class_stats", "option", "process_stats", "profile_dump", "profile_start"]
__all__ += ["profile_stop", "set_option", "stats", "trim", "version"]

CLASSES_MAX = 108  # HAK_STATS_CLASSES
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


def _text(text):
    """For C, which takes a zero byte for the end."""
    if b"\0" in text:
        raise ValueError("embedded null byte")
    return text


def _bytes(count):
    """A number that ctypes would cut to its lower bits."""
    if not 0 <= count < 1 << 8 * ctypes.sizeof(ctypes.c_size_t):
        raise ValueError(f"{count} is no number of bytes")
    return count


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
    return bool(_function("hak_trim", ctypes.c_int, ctypes.c_size_t)(_bytes(keep_bytes)))


def _option_checked(error, name, value=None):
    """The message names the option, and the value that is none of its values."""
    if error:
        why = {
            errno.ENOENT: f"there is no option {name}",
            errno.EINVAL: f"{name}={value}: bad value",
            errno.EPERM: f"{name}={value}: this is set in the environment, at the start of the program only",
        }.get(error, f"{name}: {os.strerror(error)}")
        raise OSError(error, f"{why} (hakmem options lists all)")


def option(name):
    """The value of an option in force (docs/options.md)."""
    value = ctypes.create_string_buffer(OPTION_BYTES_MAX)
    get = _function("hak_option_get", ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
    _option_checked(get(_text(name.encode()), value, OPTION_BYTES_MAX), name)
    return value.value.decode()


def set_option(name, value):
    """Sets an option; None returns it to the preset's value."""
    set_ = _function("hak_option_set", ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)
    text = None if value is None else _text(str(value).encode())
    _option_checked(set_(_text(name.encode()), text), name, value)


def profile_start(interval_bytes=512 << 10):
    """Begins a heap profile, with one sample for each interval_bytes; 1: every allocation."""
    _checked(_function("hak_profile_start", ctypes.c_int, ctypes.c_size_t)(_bytes(interval_bytes)))


def profile_dump(path):
    """Writes the heap profile to a file for pprof."""
    error = _function("hak_profile_dump", ctypes.c_int, ctypes.c_char_p)(_text(os.fsencode(path)))
    if error:
        raise OSError(error, os.strerror(error), os.fspath(path))


def profile_stop():
    """Ends the sampling; what was sampled can still be written."""
    _checked(_function("hak_profile_stop", ctypes.c_int)())
