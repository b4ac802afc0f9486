"""Measures hisparse beside llama-server in one run; scripts/bench_vs_llamacpp.sh starts it and tells how.

Both servers of a phase are up at the same time with the same number of slots and the same context. They take turns:
each measurement goes to one and at once to the other, with the same prompts, and the one that begins changes from round
to round, so that a machine that gets slower or faster in between does so for both. Only batches at 7500 tokens, which
take many minutes to read, have one turn, cut into as many samples. While one is measured the other is idle; the CPU
time that it and other programs take meanwhile is measured too, and told where it is more than next to nothing.
"""

import argparse
import collections
import contextlib
import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import machine
import measure
import plan
import prompts
import report
import servers

_SEED = 20240607
_WARM_UP_TOKENS = 64
_IDLE_SHARE_TOLD = 0.02  # of one core
_STRANGERS_SHARE_TOLD = 0.1
_SHORTEST_WATCHED = 1.0  # seconds; clocks of CPU time are coarse
_LOAD_TOLD = 0.5
_MIB = 2**20
_TALKATIVE = "4"  # of llama-server


def parse_arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench_vs_llamacpp.sh", description=(
        "Measures hisparse and llama-server in turn on the same model and prints a table with ratios."))
    parser.add_argument("--hisparse", required=True, metavar="PATH", help="the program (default: build/server's)")
    parser.add_argument("--llama-server", required=True, metavar="PATH", help="the peer (default: built from PyPI)")
    parser.add_argument("--peer-build", default="given by --llama-server", help=argparse.SUPPRESS)
    parser.add_argument("--model", required=True, metavar="FILE",
                        help="a GGUF file (default: scripts/fetch_model.sh's)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: the cores")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each figure (default 5)")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", dest="size", action="store_const", const="quick",
                      help="leave out batch 8 at 7500 tokens, which takes most of the time")
    size.add_argument("--full", dest="size", action="store_const", const="full",
                      help="batch 32 at 7500 tokens too; takes 12 GB of memory and hours on two cores")
    parser.add_argument("--only", nargs="+", default=[], metavar="FIGURE",
                        help="names or patterns, such as 'decode-*' prefill-512 start-up ttft-chat memory-1")
    parser.add_argument("--json", metavar="FILE", help="write all figures there too")
    parser.add_argument("--timeout", type=float, default=900, help="seconds without a byte that end the run")
    arguments = parser.parse_args()
    if arguments.threads < 1 or arguments.rounds < 1:
        parser.error("--threads and --rounds are at least 1")
    arguments.size = arguments.size or "default"
    return arguments


def say(text):
    print(text, file=sys.stderr, flush=True)


class Comparison:
    def __init__(self, arguments, logs):
        self._arguments = arguments
        self._logs = logs
        self._plan = plan.Plan(size=arguments.size, only=arguments.only)
        self._samples = collections.defaultdict(lambda: collections.defaultdict(list))
        self._facts = {}
        self._commands = {}
        self._notes = []
        self._disturbances = []  # (cores, who, metric)

    def run(self):
        arguments = self._arguments
        described = machine.describe()
        if described["load_average_at_start"] > _LOAD_TOLD:
            self._notes.append("the machine was busy before the run; take these figures as rough")
        pathlib.Path(arguments.model).read_bytes()  # both find the file in the page cache
        self._ask_peer_for_facts()
        if self._plan.wants("start-up"):
            self._measure_start()
        for phase in self._plan.phases:
            self._measure_phase(phase)
        return {
            "machine": described, "model": os.path.basename(arguments.model), "threads": arguments.threads,
            "rounds": arguments.rounds, "results": report.summarize(self._plan.metrics, self._samples),
            "servers": {name: {"version": version, "facts": self._facts[name], "command": self._commands[name]}
                        for name, version in self._versions().items()},
            "notes": self._all_notes(),
        }

    def _versions(self):
        return {"hisparse": _output_of(self._arguments.hisparse, "version"),
                "llama-server": _output_of(self._arguments.llama_server, "--version")}

    def _ask_peer_for_facts(self):
        # It tells about its kernels and its cache only at a verbosity that would cost time in a measurement.
        self._start("llama-server", self._plan.start_setup, "-lv", _TALKATIVE).stop()
        self._commands.clear()

    def _start(self, name, setup, *more):
        arguments = self._arguments
        maker, binary = {"hisparse": (servers.hisparse_command, arguments.hisparse),
                         "llama-server": (servers.llama_server_command, arguments.llama_server)}[name]

        def command_of(port):
            return [*maker(binary, arguments.model, arguments.threads, setup, port), *more]

        server = servers.Server(name, command_of, os.path.join(self._logs, f"{name}.log"))
        self._commands.setdefault(name, server.command)
        if name not in self._facts:
            self._facts[name] = _facts_of(name, server.log(), arguments)
        self._check_cache_size(server, setup)
        return server

    def _check_cache_size(self, server, setup):
        # hisparse takes less than asked for where the memory is short; llama-server does not.
        found = re.search(r"\((\d+) tokens in all\)", server.log())
        if found and int(found.group(1)) != setup.slots * setup.context:
            raise RuntimeError(f"hisparse keeps {found.group(1)} tokens instead of {setup.slots} * {setup.context}: "
                               "there is not enough free memory for this run")

    def _measure_start(self):
        for turn in range(self._arguments.rounds):
            for name in _order(turn):
                server = self._start(name, self._plan.start_setup)
                server.stop()
                self._samples["start-up"][name].append(server.start_seconds * 1000)
        say("start-up measured")

    def _measure_phase(self, phase):
        with contextlib.ExitStack() as stack:
            clients = {}
            for name in _order(0):
                server = self._start(name, phase.setup)
                stack.callback(server.stop)
                clients[name] = measure.Client(server, self._arguments.timeout)
            maker = prompts.PromptMaker(clients["llama-server"].server.port, _SEED)
            for client in clients.values():
                client.prefill(maker.tokens(_WARM_UP_TOKENS))
            for turn, measurement in itertools.product(range(self._arguments.rounds), phase.measurements):
                if turn == 0 or not measurement.in_one_turn:
                    self._take_turns(clients, measurement, measurement.make_prompts(maker), _order(turn))
                    say(f"round {turn + 1} of {self._arguments.rounds}: {', '.join(measurement.metrics)}")
            for name, client in clients.items():
                self._samples[phase.memory_metric][name].append(client.server.peak_bytes() / _MIB)

    def _take_turns(self, clients, measurement, made, order):
        windows = self._arguments.rounds if measurement.in_one_turn else 1
        for name in order:
            with self._watching([client.server for client in clients.values()], name, measurement.metrics[0]):
                figures = measurement.take(clients[name], made, windows)
            clients[name].server.settle()
            for metric, values in figures.items():
                self._samples[metric][name] += values

    @contextlib.contextmanager
    def _watching(self, both, measured, metric):
        """Notes what took CPU time beside the server that is measured: the other one, and strangers."""
        def taken():
            own = os.times()
            cpu = {server.name: server.cpu_seconds() for server in both}
            known = sum(cpu.values()) + own.user + own.system
            return own.elapsed, cpu, machine.busy_seconds() - known

        elapsed, cpu, strangers = taken()
        yield
        elapsed_then, cpu_then, strangers_then = taken()
        seconds = max(elapsed_then - elapsed, _SHORTEST_WATCHED)
        for server in both:
            share = (cpu_then[server.name] - cpu[server.name]) / seconds
            if server.name != measured and share > _IDLE_SHARE_TOLD:
                self._disturbances.append((share, f"the idle {server.name}", metric))
        share = (strangers_then - strangers) / seconds
        if share > _STRANGERS_SHARE_TOLD:
            self._disturbances.append((share, "other programs", metric))

    def _all_notes(self):
        worst = {}
        for share, who, metric in sorted(self._disturbances):
            worst[who] = f"{who} took up to {share:.0%} of a core while {metric} was measured; take that as rough"
        return [*self._notes, *worst.values()]


def _output_of(*command):
    """In one line. Programs tell their version on either stream."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
    return " ".join(done.stdout.split())


def _order(turn):
    names = ("hisparse", "llama-server")
    return names if turn % 2 == 0 else names[::-1]


def _facts_of(name, log, arguments):
    """What a server says of its numbers, its KV rows and its kernels at its start."""
    if name == "hisparse":
        return re.findall(r"((?:numerics|KV cache): .*)", log)
    return [arguments.peer_build, *re.findall(r"(K \([a-z0-9]+\):.*V \([a-z0-9]+\).*|system_info: .*)", log)]


def main():
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory() as logs:
        run = Comparison(arguments, logs).run()
    print(report.markdown(run))
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(run, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except (RuntimeError, OSError, ValueError) as failure:
        sys.exit(f"error: {failure}")
