"""A real Prometheus scrapes the figures of a redis-server, and answers each query of the dashboard.

    prometheus.py hakmem-live LIBRARY DASHBOARD
"""

import contextlib
import functools
import http.server
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import urllib.parse
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import cases

TOOL, LIBRARY, DASHBOARD = sys.argv[1:]


class Exporter(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = subprocess.run([TOOL, "--openmetrics"], capture_output=True, check=True).stdout
        self.send_response(200)
        self.send_header("Content-Type", "application/openmetrics-text; version=1.0.0; charset=utf-8")
        self.end_headers()
        with contextlib.suppress(OSError):  # Prometheus waited long enough
            self.wfile.write(text)

    def log_message(self, *_):
        pass


def ask(port: int, path: str, **words):
    url = f"http://127.0.0.1:{port}{path}?{urllib.parse.urlencode(words)}"
    return json.load(urllib.request.urlopen(url, timeout=10))["data"]


def answer(port: int, query: str):
    found = ask(port, "/api/v1/query", query=query)["result"]
    assert found, f"no answer to {query}"
    return found


def queries() -> list[str]:
    """Those of the dashboard, as Grafana would send them for all processes."""
    panels = json.loads(pathlib.Path(DASHBOARD).read_text(encoding="utf-8"))["panels"]
    found = [target["expr"] for panel in panels for target in panel["targets"]]
    return [re.sub(r"\$(command|pid)", ".*", text).replace("$__rate_interval", "10s") for text in found]


def main(folder: pathlib.Path, started: list) -> None:
    exporter = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Exporter)
    threading.Thread(target=exporter.serve_forever, daemon=True).start()
    # A limit, which one of the panels is about.
    environment = os.environ | {"LD_PRELOAD": LIBRARY, "HAKMEM_LIVE": "1", "HAKMEM_LIMIT_MB": "4000"}
    started.append(subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", str(folder / "s"), "--save", ""],
                                    env=environment, stdout=subprocess.DEVNULL))  # fmt: skip
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs: [{job_name: hakmem, static_configs: "
        f"[{{targets: ['127.0.0.1:{exporter.server_port}']}}]}}]\n", encoding="utf-8")  # fmt: skip
    log = open(folder / "log", "w+b")
    port = 18090
    started.append(subprocess.Popen(
        ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
         f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log))  # fmt: skip
    cases.until((folder / "s").exists)
    fill = ["redis-cli", "-s", str(folder / "s"), "SETRANGE", "key", "20000000", "end"]
    subprocess.run(fill, capture_output=True, check=True)

    def live():
        return int(answer(port, 'hakmem_live_bytes{command="redis-server"}')[0]["value"][1]) > 10 << 20

    cases.until(live, OSError, AssertionError)
    targets = ask(port, "/api/v1/targets")["activeTargets"]
    assert targets[0]["health"] == "up" and targets[0]["lastError"] == "", f"the scrape: {targets}"
    wanted = queries()
    assert len(wanted) >= 10, f"the dashboard has {len(wanted)} queries"
    for query in wanted:
        cases.until(functools.partial(answer, port, query), OSError, AssertionError)
    cases.refuses(AssertionError, answer, port, "hakmem_nonsense_bytes")  # a metric that hakmem has not
    print(f"{len(wanted)} queries answered")


cases.need("prometheus", "redis-server", "redis-cli")
running = []
with tempfile.TemporaryDirectory() as name:
    try:
        main(pathlib.Path(name), running)
    except AssertionError:
        print((pathlib.Path(name) / "log").read_text(errors="replace")[-2000:])
        raise
    finally:
        for process in running:
            process.kill()
            process.wait()
