"""The two servers as processes: command lines, start, memory, CPU time, end."""

import ctypes
import dataclasses
import os
import pathlib
import re
import signal
import socket
import subprocess
import time

import streams

_POLL_SECONDS = 0.005
_START_TIMEOUT = 300
_STOP_TIMEOUT = 20
_SETTLE_SECONDS = 0.2
_SETTLE_SHARE = 0.1  # of a core
_SETTLE_LOOKS = 150
_PR_SET_PDEATHSIG = 1
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass(frozen=True)
class Setup:
    """What both servers are told alike: `slots` requests at a time, each with `context` tokens."""

    slots: int
    context: int


def hisparse_command(binary, model, threads, setup, port):
    # The KV cache is by default as large as all slots need: slots * context tokens, as on the other side.
    return [binary, "serve", "--model", model, "--port", str(port), "--threads", str(threads),
            "--max-num-seqs", str(setup.slots), "--max-model-len", str(setup.context),
            "--no-enable-prefix-caching"]


def llama_server_command(binary, model, threads, setup, port):
    # -c counts all slots together. An explicit -np gives each slot KV rows of its own, so that attention reads only the
    # rows of its own sequence. The cache flags and `cache_prompt` in the requests turn every reuse off. The sampler is
    # cut down to the one that a greedy choice needs.
    return [binary, "-m", model, "--host", "127.0.0.1", "--port", str(port), "-t", str(threads), "-tb", str(threads),
            "-np", str(setup.slots), "-c", str(setup.slots * setup.context), "-fa", "on",
            "-ctk", "f16", "-ctv", "f16", "--no-cache-prompt", "--cache-ram", "0", "--fit", "off", "--no-ui",
            "--offline", "--samplers", "top_k", "--top-k", "1"]


class Server:
    """One running server on a port of the loopback interface. Ends with its parent, whatever ends that."""

    def __init__(self, name, command_of, log_file):
        self.name = name
        self.port = _free_port()
        self.command = command_of(self.port)
        self.log_file = pathlib.Path(log_file)
        self._libc = ctypes.CDLL(None)
        with open(self.log_file, "wb") as log:
            begin = time.perf_counter()
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            preexec_fn=self._end_with_parent)
        try:
            self._wait_until_healthy(begin + _START_TIMEOUT)
        except BaseException:
            self.stop()
            raise
        self.start_seconds = time.perf_counter() - begin

    def _end_with_parent(self):
        self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    def _wait_until_healthy(self, deadline):
        while time.perf_counter() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with {self.process.returncode}:\n{self.log()[-2000:]}")
            try:
                if streams.get(self.port, "/health")[0] == 200:
                    return
            except (OSError, streams.RequestFailed):
                pass
            time.sleep(_POLL_SECONDS)
        raise RuntimeError(f"{self.name} did not become healthy in {_START_TIMEOUT} s")

    def peak_bytes(self):
        """The most memory that was ever resident (VmHWM), file pages included."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) * 1024

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def settle(self):
        """Returns when the server is idle: one whose clients have left may need a step to see it."""
        for _ in range(_SETTLE_LOOKS):
            before = self.cpu_seconds()
            time.sleep(_SETTLE_SECONDS)
            if self.cpu_seconds() - before <= _SETTLE_SHARE * _SETTLE_SECONDS:
                return
        raise RuntimeError(f"{self.name} is still busy {_SETTLE_LOOKS * _SETTLE_SECONDS:.0f} s after its last request")

    def log(self):
        return self.log_file.read_text(errors="replace")

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(_STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
