"""Starts the real binary on a small model and hands tests a client."""

import os
import pathlib
import re
import signal
import subprocess
import time

import openai
import pytest
import requests

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("HISPARSE_BINARY", ROOT / "build/release/src/app/hisparse"))
TINY_MODEL = ROOT / "tests/golden/data/tiny_llama.gguf"
SMOLLM2 = os.environ.get("HISPARSE_SMOLLM2", "")
START_SECONDS = 120


class Server:
    """One running `hisparse serve` on a free port of the loopback interface."""

    def __init__(self, model, *flags, env=None):
        self.log_lines = []
        self.told_to_end = False
        self.process = subprocess.Popen(
            [BINARY, "serve", "--model", model, "--port", "0", *flags],
            stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
        self.port = self._wait_for_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def _wait_for_port(self):
        for line in self.process.stderr:
            self.log_lines.append(line)
            found = re.search(r"serving .* on http://127\.0\.0\.1:(\d+)", line)
            if found:
                return int(found.group(1))
        raise AssertionError("the server did not start:\n" + "".join(self.log_lines))

    def client(self, **options):
        return openai.OpenAI(base_url=self.url + "/v1", api_key=options.pop("api_key", "none"),
                             max_retries=0, timeout=120, **options)

    def metric(self, name, **labels):
        """The sum of all series of a metric whose labels include `labels`."""
        total, seen = 0.0, False
        for line in requests.get(self.url + "/metrics", timeout=30).text.splitlines():
            match = re.match(r"^([^\s{]+)(\{.*\})?\s+(\S+)$", line)
            if not match or match.group(1) != name:
                continue
            if all(f'{key}="{value}"' in (match.group(2) or "") for key, value in labels.items()):
                total, seen = total + float(match.group(3)), True
        assert seen, f"no metric {name} with {labels}"
        return total

    def wait_for_metric(self, name, value, seconds=30, **labels):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.metric(name, **labels) == value:
                return
            time.sleep(0.05)
        assert self.metric(name, **labels) == value

    def terminate(self):
        """SIGTERM, once: a second one would end the process at once."""
        if not self.told_to_end:
            self.told_to_end = True
            self.process.send_signal(signal.SIGTERM)

    def stop(self):
        self.terminate()
        rest = self.process.stderr.read()
        return self.process.wait(timeout=90), rest


@pytest.fixture(scope="module")
def server():
    running = Server(TINY_MODEL, "--max-model-len", "4096", "--max-num-seqs", "16")
    yield running
    code, log = running.stop()
    assert code == 0, log


@pytest.fixture(scope="module")
def smollm2_server():
    if not SMOLLM2:
        pytest.skip("HISPARSE_SMOLLM2 does not name the model file")
    running = Server(SMOLLM2, "--served-model-name", "smollm2")
    yield running
    code, log = running.stop()
    assert code == 0, log
