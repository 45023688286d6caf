"""What libhakmem.so shows and needs, read from its ELF tables.

    exports.py LIBRARY            judges the library
    exports.py --control LIBRARY  judges a library that breaks the rules (libc): must be refused

Rules: the whole malloc family, all forms of operator new and delete and all HAK_API functions of the public headers are
exported, and nothing else; NEEDED names libc (and ld.so) only; thread-local storage is initial-exec and at most 16
bytes; no text relocations.
"""
import pathlib
import re
import subprocess
import sys

HEADERS = pathlib.Path(__file__).resolve().parents[2] / "include" / "hakmem"

FAMILY = set(
    """malloc calloc realloc free cfree reallocarray aligned_alloc memalign posix_memalign valloc pvalloc
    malloc_usable_size malloc_trim mallopt mallinfo mallinfo2 malloc_info malloc_stats free_sized
    free_aligned_sized __libc_malloc __libc_calloc __libc_realloc __libc_free __libc_memalign __libc_valloc
    __libc_pvalloc""".split()
)
# libc's other spellings of the same; dlopen, from which RTLD_DEEPBIND is taken out; what installs seccomp filters, and
# chroot, before which files are read; mlockall, before which what is only reserved goes back; and what the background
# thread must not be there for.
ALSO = {"__libc_cfree", "__libc_reallocarray", "__posix_memalign", "chroot", "dlopen", "mlockall", "prctl", "syscall"}
ALSO |= {"unshare", "setns", "clone", "fork", "_Fork"}
# new, new[], delete, delete[]: plain, nothrow, sized, aligned, and together. m is size_t on 64-bit machines.
FAMILY |= {f"_Z{name}{form}{nothrow}" for name in ("nwm", "nam", "dlPv", "daPv") for form in ("", "St11align_val_t")
           for nothrow in ("", "RKSt9nothrow_t")}  # fmt: skip
FAMILY |= {f"_Z{name}Pvm{form}" for name in ("dl", "da") for form in ("", "St11align_val_t")}
NEEDED_ALLOWED = re.compile(r"^(libc\.so|ld-linux|libpthread\.so|libc\.musl)")


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def public_names():
    names = set()
    for header in HEADERS.glob("*.h"):
        names |= set(re.findall(r"^HAK_API [^;]*?\b(hak_\w+)\(", header.read_text("utf-8"), re.M))
    assert {"hak_malloc", "hak_stats_get", "hak_option_set"} <= names, names
    return names


def faults(library):
    found = []
    public = public_names()
    exported = set()
    for line in run("nm", "-D", "--defined-only", library).splitlines():
        name = line.split()[-1].split("@")[0]
        exported.add(name)
        if not (name in FAMILY or name in ALSO or name in public):
            found.append(f"exports {name}")
    found += [f"does not export {name}" for name in sorted((FAMILY | public) - exported)]
    dynamic = run("readelf", "-dW", library)
    for needed in re.findall(r"\(NEEDED\).*\[(.*?)\]", dynamic):
        if not NEEDED_ALLOWED.match(needed):
            found.append(f"needs {needed}")
    if "TEXTREL" in dynamic:
        found.append("has text relocations")
    tls = re.search(r"^\s*TLS\s+\S+\s+\S+\s+\S+\s+\S+\s+(0x[0-9a-f]+)", run("readelf", "-lW", library), re.M)
    size = int(tls.group(1), 16) if tls else 0
    if not 0 < size <= 16:
        found.append(f"has {size} bytes of thread-local storage")
    relocations = run("readelf", "-rW", library)
    if re.search(r"DTPMOD|TLSDESC|__tls_get_addr", relocations):
        found.append("uses dynamic thread-local storage")
    if not re.search(r"FLAGS.*STATIC_TLS", dynamic):
        found.append("is not marked STATIC_TLS (initial-exec)")
    return found


def main():
    control = sys.argv[1] == "--control"
    found = faults(sys.argv[-1])
    for fault in found[:20]:
        print(f"{sys.argv[-1]}: {fault}")
    return int(bool(found) != control)


if __name__ == "__main__":
    sys.exit(main())
