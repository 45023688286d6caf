#!/usr/bin/env python3
"""Real servers and tools of the distribution, on libc's malloc and on hakmem, in turns.

    runs.py [--work N] [--seconds N] [--rounds N] [--write FILE] LIBRARY [NAME...]

A server is started, loaded by its own client, looked at again after ten idle seconds, and stopped. A tool runs to its
end. The load is repeated until it has lasted --seconds on libc's malloc, and as often on hakmem. As root, everything
runs as the user nobody. Memory is the sum over the processes of what each has (PSS), sampled. Whether a process runs on
the library is read from its mappings, or from the report that it writes. --work: the amount of work in one load, 100 by
default; --write puts the table into FILE. A program that is not installed is left out, with its reason. Status 1: one
failed on hakmem only, or ran without it. One that fails on libc, too, has a row that says so.
"""

import argparse
import os
import pathlib
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
sys.dont_write_bytecode = True
from lab.run import tree

NOBODY = 65534
PORT = 18080
IDLE_SECONDS = 10
REPORT = "hakmem-report"

ERLANG = """
Work = fun(Work, 0) -> ok; (Work, N) ->
  maps:from_list([{I, binary:copy(<<I:32>>, 500)} || I <- lists:seq(1, 200)]), Work(Work, N - 1) end,
Me = self(),
[spawn(fun() -> Work(Work, WORK), Me ! done end) || _ <- lists:seq(1, 100)],
[receive done -> ok end || _ <- lists:seq(1, 100)], halt(0).
"""
JAVA = """
import com.sun.net.httpserver.HttpServer; import java.net.InetSocketAddress; import java.nio.ByteBuffer;
import java.util.concurrent.Executors; import java.util.zip.Deflater;
public class Server { public static void main(String[] a) throws Exception {
  HttpServer s = HttpServer.create(new InetSocketAddress("127.0.0.1", PORT), 0);
  s.setExecutor(Executors.newFixedThreadPool(4));
  s.createContext("/", x -> { ByteBuffer b = ByteBuffer.allocateDirect(100000); b.putInt(1);
    Deflater d = new Deflater(); d.setInput(new byte[50000]); d.finish();
    byte[] o = new byte[1000]; int n = d.deflate(o); d.end();
    x.sendResponseHeaders(200, n); x.getResponseBody().write(o, 0, n); x.close(); });
  s.start(); } }
"""
NODE = """
const { Worker, isMainThread } = require('worker_threads'), zlib = require('zlib');
if (isMainThread) for (let i = 0; i < 4; i++) new Worker(__filename);
else for (let i = 0, kept = []; i < WORK * 20; i++) {
  kept[i % 50] = zlib.gunzipSync(zlib.gzipSync(Buffer.alloc(20000 + i, 'x' + i)));
  JSON.parse(JSON.stringify(kept[i % 50].toString('latin1').split('x')));
}
"""
TYPESCRIPT = """
const { Worker, isMainThread } = require('worker_threads'), assert = require('assert');
if (isMainThread) for (let i = 0; i < 4; i++) new Worker(__filename);
else {
  const ts = require('/usr/share/nodejs/typescript/lib/typescript.js');
  for (let i = 0; i < WORK / 100; i++) {
    const program = ts.createProgram(['page.ts'], { strict: true, target: ts.ScriptTarget.ES2020, outDir: 'out' });
    assert.strictEqual(ts.getPreEmitDiagnostics(program).length, 0);
    let text = '';
    program.emit(undefined, (name, made) => { text += made; });
    assert.ok(text.includes('of_399'));
  }
}
"""
TYPES = "".join(
    f"export interface I{i} {{ name: string; value: number; next?: I{i} }}\n"
    f"export function of_{i}(all: I{i}[]): Map<string, I{i}> {{ return new Map(all.map(each => [each.name, each] as [string, I{i}])); }}\n"
    for i in range(400)
)
RUBY = """
kept = {}
(WORK * 3000).times { |i| kept[i % 5000] = "line #{i} " * (i % 40) + i.to_s; kept.delete(i * 7 % 5000) }
puts kept.size
"""
PHP = "<?php $a = []; for ($i = 0; $i < 2000; $i++) $a[] = str_repeat((string)$i, 20); echo md5(implode($a));"
NGINX = """
daemon off; worker_processes 2; pid nginx.pid; error_log error.log;
events { worker_connections 256; }
http { access_log off;
  client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
  server { listen 127.0.0.1:PORT; root .; gzip on; gzip_min_length 1; gzip_types *;
    location ~ php$ { fastcgi_pass unix:php.sock;
      fastcgi_param SCRIPT_FILENAME HOME/page.php; fastcgi_param REQUEST_METHOD GET; } } }
"""
APACHE = """
ServerRoot HOME
ServerName localhost
Listen 127.0.0.1:PORT
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
PidFile HOME/pid
ErrorLog HOME/error.log
DocumentRoot HOME
"""
PHP_FPM = """
[global]
daemonize = no
error_log = HOME/fpm.log
[www]
listen = HOME/php.sock
pm = static
pm.max_children = 4
"""
CHROMIUM = """
<body><script>
for (let i = 0; i < 20000; i++) document.body.appendChild(document.createElement('p')).textContent = 'p' + i;
</script>
"""
AB = "ab -q -n {requests} -c 20 http://127.0.0.1:PORT/page.{kind} | grep -q '^Failed requests: *0'"


@dataclass(frozen=True)
class Program:
    title: str
    needs: tuple  # commands; a path may have a '*'
    load: str  # a tool's command, or that of a server's client
    server: str = ""  # one command a line
    ready: str = ""  # succeeds when the server answers
    prepare: str = ""  # before the server starts, on libc's malloc
    files: tuple = ()  # pairs of name and text
    memory: str = ""  # part of the name of the processes that count; empty: all
    package: str = ""


def http(kind: str, requests: str) -> dict:
    ready = f"curl -sf -o page http://127.0.0.1:PORT/page.{kind}"
    return {"load": AB.format(kind=kind, requests=requests), "ready": ready}


def build(c: str, cxx: str) -> Program:
    return Program(
        f"{c}, building hakmem", ("cmake", "ninja", c, cxx), package="cmake ninja-build",
        prepare=f"CC={c} CXX={cxx} cmake -S ROOT -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DHAKMEM_TESTS=OFF"
        f" -DHAKMEM_BENCH=OFF -DHAKMEM_TOOLS=OFF -DCMAKE_C_COMPILER_LAUNCHER= -DCMAKE_CXX_COMPILER_LAUNCHER=",
        load="ninja -C build -t clean >cleaned && ninja -C build -j2 hakmem_core")  # fmt: skip


PROGRAMS = {
    "postgresql": Program(
        "PostgreSQL, pgbench", ("/usr/lib/postgresql/*/bin/postgres", "pgbench"), package="postgresql",
        prepare="$(ls -d /usr/lib/postgresql/*/bin)/initdb -A trust -U me -D data",
        server="$(ls -d /usr/lib/postgresql/*/bin)/postgres -D data -k HOME -c listen_addresses=",
        ready="psql -h HOME -U me -l",
        load="pgbench -h HOME -U me -q -i -s 2 postgres &&"
        " pgbench -h HOME -U me -n -c 4 -j 2 -t $((WORK * 20)) postgres"),
    "mariadb": Program(
        "MariaDB, mariadb-slap", ("mariadbd", "mariadb-slap"), package="mariadb-server",
        prepare="mariadb-install-db --no-defaults --auth-root-authentication-method=normal --datadir=HOME/data",
        server="mariadbd --no-defaults --datadir=HOME/data --socket=HOME/s --skip-networking --pid-file=HOME/pid",
        ready="mariadb-admin --no-defaults -u root -S HOME/s ping",
        load="mariadb-slap --no-defaults -u root -S HOME/s -a -c 4 --auto-generate-sql-load-type=mixed"
        " --number-of-queries=$((WORK * 100))"),
    "nginx": Program(
        "nginx, ab", ("nginx", "ab", "curl"), server="nginx -p HOME -c HOME/conf -e error.log",
        files=(("conf", NGINX), ("page.html", "<p>A page.</p>\n" * 500)), package="nginx-light apache2-utils",
        **http("html", "$((WORK * 500))")),
    "apache": Program(
        "Apache, ab", ("/usr/sbin/apache2", "ab", "curl"), server="/usr/sbin/apache2 -f HOME/conf -D FOREGROUND",
        files=(("conf", APACHE), ("page.html", "<p>A page.</p>\n" * 500)), package="apache2 apache2-utils",
        **http("html", "$((WORK * 300))")),
    "php-fpm": Program(
        "PHP-FPM behind nginx, ab", ("/usr/sbin/php-fpm*", "nginx", "ab", "curl"), memory="php-fpm",
        server="$(ls /usr/sbin/php-fpm* | tail -n 1) -n -y HOME/fpm.conf\n"
        "env -u LD_PRELOAD nginx -p HOME -c HOME/conf -e error.log",
        files=(("conf", NGINX), ("fpm.conf", PHP_FPM), ("page.php", PHP)), package="php-fpm nginx-light apache2-utils",
        **http("php", "$((WORK * 100))")),
    "redis": Program(
        "redis, redis-benchmark", ("redis-server", "redis-benchmark", "redis-cli"), package="redis-server redis-tools",
        server="redis-server --port 0 --unixsocket HOME/s --save '' --appendonly no", ready="redis-cli -s s ping",
        load="redis-benchmark -s s -q -n $((WORK * 400)) -r 100000 -d 200 -c 20 -t set,get,lpush,lpop,sadd,hset,zadd"),
    "memcached": Program(
        "memcached, memcslap", ("memcached", "memcslap"), package="memcached libmemcached-tools",
        server="memcached -p PORT -l 127.0.0.1 -U 0 -m 256", ready="memcping --servers=127.0.0.1:PORT",
        load="memcslap --servers=127.0.0.1:PORT --concurrency=4 --execute-number=$((WORK * 100)) --test=set"),
    "java": Program(
        "OpenJDK, an HTTP server with direct buffers, ab", ("java", "javac", "ab", "curl"),
        package="default-jdk-headless apache2-utils",
        prepare="javac Server.java", files=(("Server.java", JAVA),), server="java -Xmx128m -cp . Server",
        **http("x", "$((WORK * 100))")),
    "erlang": Program(
        "Erlang, 100 processes", ("erl",), 'erl -noshell -eval "$(cat work)"', files=(("work", ERLANG),),
        package="erlang-base"),
    "node": Program("node, 4 worker_threads", ("node",), "node work.js", files=(("work.js", NODE),), package="nodejs"),
    "typescript": Program(
        "node, TypeScript's compiler in 4 worker_threads", ("node", "/usr/share/nodejs/typescript/lib/typescript.js"),
        "node compile.js", files=(("compile.js", TYPESCRIPT), ("page.ts", TYPES)), package="nodejs node-typescript"),
    "ruby": Program("ruby, strings in a hash", ("ruby",), "ruby work.rb", files=(("work.rb", RUBY),), package="ruby"),
    "ffmpeg": Program(
        "ffmpeg, MPEG-4 with 2 threads", ("ffmpeg",), package="ffmpeg",
        load="ffmpeg -v error -f lavfi -i testsrc2=s=640x360:d=$((WORK / 5)) -threads 2 -c:v mpeg4 -f null -"),
    "libreoffice": Program(
        "LibreOffice, text to PDF", ("soffice",), package="libreoffice-writer-nogui",
        prepare="seq 1 $((WORK * 200)) | sed 's/$/ of the lines of a text that is long enough/' >text.txt",
        load="soffice -env:UserInstallation=file://HOME/office --headless --convert-to pdf text.txt"
        " && [ -s text.pdf ]"),
    "gcc": build("gcc", "g++"),
    "clang": build("clang", "clang++"),
    "git": Program(
        "git, clone and repack", ("git",), package="git",
        prepare="git init -q r && cd r && git config user.name a && git config user.email a@a &&"
        " for i in $(seq 1 $((WORK / 2))); do seq $i 2000 >f$i; seq 1 $i >>f1; git add . && git commit -qm $i; done",
        load="rm -rf c && git clone -q --no-local r c && cd c && git repack -q -adf --window=40 --threads=2 && git fsck --full &&"
        " git log -p >/dev/null"),
    "chromium": Program(
        "chromium, headless, in its sandbox", ("chromium",), package="chromium",
        files=(("page.html", CHROMIUM),),
        load="chromium --headless --disable-gpu --user-data-dir=HOME/c --dump-dom file://HOME/page.html >page &&"
        " grep -q p19999 page"),
}  # fmt: skip


class Failed(Exception):
    pass


def missing(program: Program) -> str:
    for need in program.needs:
        if not (any(pathlib.Path("/").glob(need[1:])) if need[0] == "/" else shutil.which(need)):
            return f"{need} is not installed (Debian: {program.package})"
    return ""


def cpu_seconds() -> float:
    """Of all processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Run:
    """One run of a program in a folder of its own."""

    def __init__(self, program: Program, library: str, work: int):
        self.program, self.library, self.client = program, library, 0
        self.home = tempfile.mkdtemp(prefix="hakmem-run-")
        os.chmod(self.home, 0o755)
        self.as_user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
        self.words = {"HOME": self.home, "PORT": str(PORT), "WORK": str(work), "ROOT": str(ROOT)}
        for file, text in program.files:
            pathlib.Path(self.home, file).write_text(self.fill(text), encoding="utf-8")
        if self.as_user:
            for path in (self.home, *(os.path.join(self.home, file) for file, _ in program.files)):
                os.chown(path, NOBODY, NOBODY)
        self.highest = 0
        self.found = False  # the library, in a process that counts

    def fill(self, text: str) -> str:
        return re.sub(r"\b(HOME|PORT|WORK|ROOT)\b", lambda word: self.words[word[1]], text)

    def start(self, command: str, preload: str) -> subprocess.Popen:
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL": "C.UTF-8",
                       "HOME": self.home, "TMPDIR": self.home}  # fmt: skip
        if preload:
            environment |= {"LD_PRELOAD": preload, "HAKMEM_STATS_FILE": os.path.join(self.home, REPORT + ".%p")}
        with open(os.path.join(self.home, "log"), "ab") as log:
            return subprocess.Popen(
                ["/bin/sh", "-c", self.fill(command)], cwd=self.home, env=environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True, **self.as_user)  # fmt: skip

    def wait(self, process: subprocess.Popen, what: str, seconds: float = 900):
        """Until a command ends; memory is looked at meanwhile."""
        end = time.monotonic() + seconds
        while process.poll() is None:
            self.look()
            if time.monotonic() > end:
                raise Failed(f"{what} does not end in {seconds:.0f} s")
            try:
                process.wait(0.1)
            except subprocess.TimeoutExpired:
                pass
        if process.returncode != 0:
            raise Failed(f"{what}: status {process.returncode}: {self.log()}")

    def log(self) -> str:
        text = pathlib.Path(self.home, "log").read_text(encoding="utf-8", errors="replace")
        return " ".join(text.split())[-300:]

    def processes(self) -> list[int]:
        """All that descend from this one, which adopts what daemons leave; without a server's client."""
        return tree.descendants(but={self.client})

    def look(self) -> int:
        """The memory of the processes that count, in bytes."""
        total = 0
        for pid in self.processes():
            try:
                name = os.readlink(f"/proc/{pid}/exe")
                if self.program.memory not in name or name in ("/usr/bin/dash", "/usr/bin/bash"):
                    continue
                text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
                total += int(re.search(r"^Pss: *(\d+)", text, re.MULTILINE)[1]) << 10
                if not self.found and self.library:
                    maps = pathlib.Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
                    self.found = self.library in maps
            except (OSError, TypeError):
                continue
        self.highest = max(self.highest, total)
        return total

    def measure(self, loads: int, seconds: float) -> tuple[float, int, int, int]:
        """CPU seconds a load of the program and its client, highest memory, memory after idling (0: a tool), loads.

        loads: how many, 0: until they have lasted this many seconds.
        """
        program, servers, idle = self.program, [], 0
        try:
            if program.prepare:
                self.wait(self.start(program.prepare, ""), "preparing")
            before = cpu_seconds()
            for command in filter(None, program.server.split("\n")):
                servers.append(self.start("exec " + command, self.library))
            if servers:
                self.await_answer(servers)
            count, begun = 0, time.monotonic()
            while count < loads if loads else count == 0 or time.monotonic() - begun < seconds:
                load = self.start(program.load, "" if servers else self.library)
                self.client = load.pid if servers else 0
                self.wait(load, "the load")
                self.client, count = 0, count + 1
            self.look()
            if servers:
                time.sleep(min(IDLE_SECONDS, int(self.words["WORK"])))
                idle = self.look()
                self.stop(servers)
            if self.library and not self.found and not list(pathlib.Path(self.home).glob(REPORT + ".*")):
                raise Failed("it ran without the library")
            return (cpu_seconds() - before) / count, self.highest, idle, count
        finally:
            for pid in self.processes():
                os.kill(pid, signal.SIGKILL)
            for process in servers:
                process.wait()
            shutil.rmtree(self.home, ignore_errors=True)

    def await_answer(self, servers):
        for _ in range(600):
            if any(process.poll() is not None for process in servers):
                raise Failed(f"the server ended: {self.log()}")
            if self.start(self.program.ready, "").wait() == 0:
                return
            time.sleep(0.1)
        raise Failed(f"the server does not answer: {self.log()}")

    def stop(self, servers):
        for process in servers:
            if process.poll() is not None:
                raise Failed(f"the server ended with {process.returncode}: {self.log()}")
            process.send_signal(signal.SIGINT if "postgres" in self.program.server else signal.SIGTERM)
        for process in servers:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                raise Failed("the server does not stop") from None
            # Java ends by the signal, with 128 more.
            if process.returncode not in (0, -signal.SIGTERM, 128 + signal.SIGTERM):
                raise Failed(f"the server stopped with {process.returncode}: {self.log()}")


def mib(count: float) -> str:
    return f"{count / (1 << 20):.0f}" if count else ""


def compare(name: str, library: str, work: int, seconds: float, rounds: int) -> tuple[str, bool]:
    """The row of the table, and whether hakmem failed."""
    program, results, loads = PROGRAMS[name], {"": [], library: []}, 0
    for turn in range(rounds):
        for preload in ("", library) if turn % 2 == 0 else (library, ""):
            try:
                results[preload].append(Run(program, preload, work).measure(loads, seconds))
                loads = results[preload][-1][3]
            except Failed as failure:
                which = "hakmem" if preload else "libc"
                return f"| {program.title} | failed on {which} | {str(failure)[:200]} | | |", bool(preload)
    (cpu, highest, idle), (ours, ours_highest, ours_idle) = (
        [statistics.median(run[i] for run in runs) for i in range(3)] for runs in results.values()
    )
    pair = f"{mib(idle)}, {mib(ours_idle)}" if idle else ""
    return (
        f"| {program.title} | {loads} | {cpu:.1f}, {ours:.1f} | {mib(highest)}, {mib(ours_highest)} | {pair} |",
        False,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", type=pathlib.Path)
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("names", nargs="*", choices=[*PROGRAMS, []])
    arguments = parser.parse_args()
    tree.adopt()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the programs end, too
    rows, left_out, is_bad, count = [], [], False, 0
    with tempfile.TemporaryDirectory(prefix="hakmem-runs-") as folder:
        os.chmod(folder, 0o755)  # anybody may load the library
        library = shutil.copy(arguments.library.resolve(), os.path.join(folder, "libhakmem.so"))
        for name in arguments.names or PROGRAMS:
            reason = missing(PROGRAMS[name])
            if reason:
                left_out.append(f"- {PROGRAMS[name].title}: {reason}")
                print(f"left out: {name}: {reason}", file=sys.stderr)
                continue
            row, failed = compare(name, library, arguments.work, arguments.seconds, arguments.rounds)
            rows.append(row)
            is_bad, count = is_bad or failed, count + ("failed on" not in row)
            print(row, flush=True)
    if arguments.write:
        text = arguments.write.read_text(encoding="utf-8")
        head, _, rest = text.partition("<!-- runs -->\n")
        _, _, tail = rest.partition("<!-- end runs -->")
        table = [
            "| program | loads | CPU seconds a load | highest memory, MiB | after idling, MiB |",
            "|---|---|---|---|---|",
            *rows,
        ]
        table += ["", "Not run:", "", *left_out] if left_out else []
        text = head + "<!-- runs -->\n" + "\n".join(table) + "\n<!-- end runs -->" + tail
        arguments.write.write_text(text, encoding="utf-8")
    if not rows:
        print("skipped: none of the programs is installed")
        return 77
    print(f"{count} ran on both")
    return 1 if is_bad else 0


if __name__ == "__main__":
    sys.exit(main())
