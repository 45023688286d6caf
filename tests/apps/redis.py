"""redis-server: the same data after the same commands, under load with background saves (which fork), and
the saved file read back by a server on libc."""
import os
import re
import subprocess
import tempfile

import app
from app import cases


class Server:
    def __init__(self, folder, on_hakmem):
        self.socket = os.path.join(folder, "socket")
        self.process = subprocess.Popen(
            ["redis-server", "--port", "0", "--unixsocket", self.socket, "--dir", folder, "--save", "",
             "--enable-debug-command", "yes", "--appendonly", "no", "--daemonize", "no"],
            env=app.environment(on_hakmem), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        cases.until(lambda: os.path.exists(self.socket) and self.ask("PING") == "PONG")

    def ask(self, *words, stdin=b""):
        done = subprocess.run(["redis-cli", "-s", self.socket, *words], input=stdin, capture_output=True, check=False)
        return done.stdout.decode(errors="replace").strip()

    def save(self):
        app.check("started" in self.ask("BGSAVE").lower(), "BGSAVE")
        cases.until(lambda: "rdb_bgsave_in_progress:0" in self.ask("INFO", "persistence"))
        app.check("rdb_last_bgsave_status:ok" in self.ask("INFO", "persistence"), "BGSAVE failed")

    def close(self):
        subprocess.run(["redis-cli", "-s", self.socket, "SHUTDOWN", "NOSAVE"], capture_output=True, check=False)
        stderr = self.process.communicate(timeout=200)[1]
        return app.Run(self.process.returncode, b"", stderr)


def commands():
    """The same pseudo-random work each time: strings, lists, hashes, sets, sorted sets, appends, deletes."""
    state, lines = 12345, []
    for i in range(40000):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        key, size = state % 5000, state % 700
        lines.append((
            f"SET s{key} {'v' * size}", f"RPUSH l{key % 300} {'e' * (size % 90)}{i}",
            f"HSET h{key % 400} f{state % 97} {'w' * size}", f"SADD t{key % 200} m{state % 1999}",
            f"ZADD z{key % 100} {state % 1000} m{i % 700}", f"APPEND s{key} {'a' * (size % 50)}",
            f"DEL s{(key * 7) % 5000} h{key % 400}", f"LTRIM l{key % 300} -200 -1",
        )[i % 8])  # fmt: skip
    return ("\n".join(lines) + "\n").encode()


def digest(server):
    return server.ask("DEBUG", "DIGEST")


def test():
    app.need("redis-server", "redis-benchmark", "redis-cli")
    work, digests = commands(), []
    for on_hakmem in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            server = Server(folder, on_hakmem)
            server.ask("--pipe-timeout", "0", stdin=work)
            digests.append(digest(server))
            if not on_hakmem:
                server.close()
                continue
            maps = open(f"/proc/{server.process.pid}/maps", encoding="utf-8").read()
            app.check("libhakmem" in maps, "the library is not in the server")
            load = subprocess.Popen(
                ["redis-benchmark", "-s", server.socket, "-n", "15000", "-r", "5000", "-d", "120", "-c", "20", "-q",
                 "-t", "set,get,lpush,lpop,sadd,hset,spop,zadd,lrange_300"], stdout=subprocess.PIPE,
            )  # fmt: skip
            saves = 0
            while load.poll() is None:
                server.save()
                saves += 1
            rates = re.findall(rb"requests per second", load.stdout.read())
            app.check(load.returncode == 0 and len(rates) >= 9, "redis-benchmark")
            app.check(saves >= 2, "the load was over before two saves")
            after = digest(server)
            server.save()
            result = server.close()
            app.check(result.code == 0, f"the server ended with {result.code}: {result.stderr[-1000:]!r}")
            most = app.proof(result, 4 << 20)
            reader = Server(folder, False)
            read_back = digest(reader)
            reader.close()
            app.check(read_back == after, f"the saved file holds other data: {read_back} {after}")
    app.check(len(digests[0]) == 40 and digests[0].strip("0"), f"no digest: {digests[0]}")
    app.check(digests[0] == digests[1], f"other data on hakmem: {digests}")
    return f"redis: ok ({saves} saves under load, largest heap {most >> 20} MiB)"


if __name__ == "__main__":
    app.main(test)
