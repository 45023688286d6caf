"""A made-up machine in which everything is in order, and the programs that are to run on it."""

import os
import struct
import subprocess
from pathlib import Path

PID = 77
AT_SECURE = 23
GROUP = "sys/fs/cgroup/app"
OLD_GROUP = "sys/fs/cgroup/memory/app"
HUGE = "sys/kernel/mm/transparent_hugepage"

LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max data size             unlimited            unlimited            bytes
Max processes             1000                 1000                 processes
Max open files            1024                 1048576              files
Max locked memory         8388608              8388608              bytes
Max address space         unlimited            unlimited            bytes
"""
STATUS = """Name:\tprogram
Uid:\t1000\t1000\t1000\t1000
VmLck:\t       0 kB
Threads:\t3
CapEff:\t0000000000000000
NoNewPrivs:\t0
Seccomp:\t0
"""
MEMORY = """MemTotal:       16000000 kB
MemAvailable:    8000000 kB
SwapTotal:       4000000 kB
SwapFree:        4000000 kB
CommitLimit:    12000000 kB
Committed_AS:    4000000 kB
"""
MOUNTS = """22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw
"""
OLD_MOUNTS = """22 1 8:1 / / rw - ext4 /dev/sda1 rw
31 22 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
"""


class Tree:
    """Files under a folder that stand for /proc, /sys and /etc; the process is PID."""

    def __init__(self, root, program, library="/usr/lib/libhakmem.so.0"):
        self.root, self.variables = Path(root), {}
        self.maps = [str(program), "/usr/lib/libc.so.6", library]
        for process in (str(PID), "self"):
            self.write(f"proc/{process}/limits", LIMITS)
            self.write(f"proc/{process}/status", STATUS)
            self.write(f"proc/{process}/cgroup", "0::/app\n")
            self.write(f"proc/{process}/personality", "00000000\n")
        (self.root / f"proc/{PID}/exe").symlink_to(program)
        self.secure(False)
        for path, text in {
            "proc/meminfo": MEMORY,
            "proc/self/mountinfo": MOUNTS,
            "proc/sys/vm/overcommit_memory": "0\n",
            "proc/sys/vm/max_map_count": "65530\n",
            "proc/sys/kernel/randomize_va_space": "2\n",
            f"{HUGE}/enabled": "always [madvise] never\n",
            f"{HUGE}/defrag": "always defer defer+madvise [madvise] never\n",
            f"{GROUP}/memory.max": f"{512 << 20}\n",
            f"{GROUP}/memory.swap.max": "max\n",
            f"{GROUP}/memory.current": f"{100 << 20}\n",
            f"{GROUP}/memory.stat": "anon 1\ninactive_file 4096\n",
            f"{GROUP}/memory.events": "low 0\nhigh 0\noom 0\noom_kill 0\n",
            f"{GROUP}/memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
            f"{GROUP}/cgroup.procs": f"{PID}\n",
        }.items():
            self.write(path, text)

    def write(self, path, text):
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def change(self, path, old, new):
        """In a file, or in that of the process and of who asks."""
        for place in [self.root / path.replace("PROC", process) for process in (str(PID), "self")]:
            text = place.read_text()
            assert old in text or path.count("PROC") == 0, f"{old} is not in {place}"
            place.write_text(text.replace(old, new))

    def remove(self, path):
        (self.root / path).unlink()

    def secure(self, is_secure):
        words = struct.pack("4Q", AT_SECURE, is_secure, 0, 0)
        (self.root / f"proc/{PID}/auxv").write_bytes(words)

    def first_version(self):
        """The control group becomes one of v1."""
        self.write("proc/self/mountinfo", OLD_MOUNTS)
        self.change("proc/PROC/cgroup", "0::/app", "4:cpu,memory:/app")
        for name, text in {
            "memory.limit_in_bytes": f"{256 << 20}\n",
            "memory.memsw.limit_in_bytes": "9223372036854771712\n",
            "memory.usage_in_bytes": f"{100 << 20}\n",
            "memory.stat": "total_inactive_file 4096\n",
            "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
        }.items():
            self.write(f"{OLD_GROUP}/{name}", text)

    def finish(self):
        """Writes what was collected."""
        lines = [
            f"{i << 24:x}-{(i << 24) + 4096:x} r-xp 00000000 08:01 {i + 100}    {path}\n"
            for i, path in enumerate(self.maps, 1)
        ]
        self.write(f"proc/{PID}/maps", "".join(lines))
        (self.root / f"proc/{PID}/environ").write_bytes(
            b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in self.variables.items())
        )


class Programs:
    """Programs made once: each has one thing wrong."""

    def __init__(self, folder, compiler):
        self.folder, self.compiler = Path(folder), compiler
        self.allocator = self.library("libjemalloc.so.2", "void *malloc(unsigned long n) { (void)n; return 0; }")
        self.sanitizer = self.library("libasan.so.8", "int sanitizer;")
        self.odd_allocator = self.library("libodd.so", "void *malloc(unsigned long n) { (void)n; return 0; }")
        self.harmless = self.library("libharmless.so", "int harmless;")
        self.plain = self.program("plain")
        self.static = self.program("static", "-static")
        self.musl = self.program("of-musl", "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1")
        # Needed, though nothing of it is used.
        self.with_allocator = self.program("with-allocator", "-Wl,--no-as-needed", self.allocator)
        self.sanitized = self.program("sanitized", "-Wl,--no-as-needed", self.sanitizer)
        own = "void *malloc(unsigned long n) { (void)n; return 0; } int main(void) { return malloc(1) != 0; }"
        self.own_malloc = self.program("own-malloc", "-fno-builtin", "-rdynamic", text=own)
        self.inner_malloc = self.program("inner-malloc", "-fno-builtin", "-fvisibility=hidden", text=own)
        words = 'const char words[] = "hakmem: HAKMEM_X is no option of hakmem, ignored"; int main(void) { return words[0] == 1; }'
        self.with_hakmem = self.program("with-hakmem", text=words)
        self.narrow = self.patched("narrow", 4, b"\1")  # EI_CLASS: 32 bits
        self.elsewhere = self.patched("elsewhere", 18, b"\x02\x00")  # e_machine: SPARC
        self.text = self.script("text", "echo text\n")
        self.by_plain = self.script("by-plain", f"#!{self.plain} -x\n")
        self.by_env = self.script("by-env", "#!/usr/bin/env -S X=1 -u Y static\n")
        self.by_script = self.script("by-script", f"#! {self.by_env}\n")
        self.by_nobody = self.script("by-nobody", "#!/nonsense/interpreter\n")
        self.by_lost = self.script("by-lost", "#!/usr/bin/env nonsense\n")
        self.by_dos = self.script("by-dos", f"#!{self.plain}\r\n")
        self.by_dos_env = self.script("by-dos-env", "#!/usr/bin/env sh\r\n")
        self.by_bare = self.script("by-bare", "#!sh\n")  # the kernel looks into no folder of PATH
        self.by_none = self.script("by-none", "#! \n")
        self.empty = self.script("empty", "")

    def compiled(self, name, text, *flags):
        path = self.folder / name
        command = [self.compiler, "-x", "c", "-", "-x", "none", "-o", path, *flags]
        subprocess.run([str(word) for word in command], input=text, text=True, check=True)
        return path

    def library(self, name, text):
        return self.compiled(name, text, "-shared", "-fPIC", "-nostdlib", "-fno-builtin", f"-Wl,-soname,{name}")

    def program(self, name, *flags, text="int main(void) { return 0; }"):
        return self.compiled(name, text, *flags)

    def patched(self, name, offset, data):
        content = bytearray(self.plain.read_bytes())
        content[offset : offset + len(data)] = data
        return self.made(name, bytes(content))

    def made(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        path.chmod(0o755)
        return path

    def script(self, name, text):
        return self.made(name, text.encode())
