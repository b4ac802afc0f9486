"""Which figures there are, what is wanted of them, and the order in which they are taken."""

import dataclasses
import enum
import fnmatch

import servers

_CHAT, _SHORT, _MEDIUM, _LONG = "chat", 64, 512, 7500  # prompts, in tokens
_SHORT_DECODE = 128
_LONG_DECODE = 64
_LONG_CONTEXT = 8192
_SHORT_CONTEXT = 1024


class Better(enum.Enum):
    HIGHER = "higher"
    LOWER = "lower"


@dataclasses.dataclass(frozen=True)
class Metric:
    name: str
    title: str
    unit: str
    better: Better
    target: float  # of the ratio hisparse / llama-server: at least this, or at most this where lower is better

    def met(self, ratio):
        return ratio >= self.target if self.better is Better.HIGHER else ratio <= self.target


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One turn of one server: `prompts` requests at a time; its figures go to the metrics named."""

    metrics: tuple  # names; decode at batch 1 gives two, decode and prefill
    prompts: int
    prompt_tokens: object  # a count, or _CHAT
    decode_tokens: int

    @property
    def in_one_turn(self):
        """Where reading the prompts takes many minutes, all samples of decoding come from one turn."""
        return self.prompts > 1 and self.prompt_tokens == _LONG

    def take(self, client, prompts, windows):
        """{metric: samples}. `windows`: how many samples of decoding to make of a turn."""
        if self.prompt_tokens == _CHAT:
            values = ([client.chat_first_token_ms(prompts[0])],)
        elif self.decode_tokens == 1:
            values = ([client.prefill(prompts[0])],)
        else:
            rates, first_seconds = client.decode(prompts, self.decode_tokens, windows)
            values = (rates, [self.prompt_tokens / first_seconds])
        return dict(zip(self.metrics, values))

    def make_prompts(self, maker):
        if self.prompt_tokens == _CHAT:
            return [maker.question()]
        return [maker.tokens(self.prompt_tokens) for _ in range(self.prompts)]


@dataclasses.dataclass(frozen=True)
class Phase:
    """A pair of servers with the same setup, and what is measured on it. Its peak memory is read at its end."""

    setup: servers.Setup
    measurements: tuple
    memory_metric: str


def _decode(batch, prompt_tokens, suffix, extra=()):
    tokens = _SHORT_DECODE if prompt_tokens == _SHORT else _LONG_DECODE
    return Measurement((f"decode-{batch}{suffix}", *extra), batch, prompt_tokens, tokens)


class Plan:
    """`only`: name patterns; empty for all."""

    def __init__(self, *, size, only):
        self.size = size
        self._only = only
        large = _LONG_CONTEXT if size == "full" else _SHORT_CONTEXT
        single = (Measurement(("ttft-chat",), 1, _CHAT, 1), Measurement(("prefill-512",), 1, _MEDIUM, 1),
                  _decode(1, _SHORT, ""), _decode(1, _LONG, "-7.5k", ("prefill-7.5k",)))
        eight, many = [_decode(8, _SHORT, "")], [_decode(32, _SHORT, "")]
        if size != "quick":
            eight.append(_decode(8, _LONG, "-7.5k"))
        if size == "full":
            many.append(_decode(32, _LONG, "-7.5k"))
        self.phases = [self._phase(1, _LONG_CONTEXT, single), self._phase(8, _LONG_CONTEXT, eight),
                       self._phase(32, large, many)]
        self.phases = [phase for phase in self.phases if phase.measurements]
        self.start_setup = servers.Setup(1, _LONG_CONTEXT)
        self.metrics = self._metrics()
        if only and not self.metrics:
            raise ValueError(f"no figure of this run is named {' or '.join(only)}")

    def wants(self, name):
        return not self._only or any(fnmatch.fnmatchcase(name, pattern) for pattern in self._only)

    def _phase(self, slots, context, measurements):
        memory = f"memory-{slots}"
        wanted = tuple(m for m in measurements if self.wants(memory) or any(map(self.wants, m.metrics)))
        return Phase(servers.Setup(slots, context), wanted, memory)

    def _metrics(self):
        speed = [Metric("prefill-512", "prefill, 512 tokens", "tokens/s", Better.HIGHER, 2.0),
                 Metric("prefill-7.5k", "prefill, 7500 tokens", "tokens/s", Better.HIGHER, 2.0)]
        for suffix, title in (("", "short context"), ("-7.5k", "7500 tokens of context")):
            for batch, target in ((1, 1.5), (8, 2.0), (32, 2.0)):
                speed.append(Metric(f"decode-{batch}{suffix}", f"decode, batch {batch}, {title}", "tokens/s",
                                    Better.HIGHER, target))
        taken = {name for phase in self.phases for m in phase.measurements for name in m.metrics}
        metrics = [metric for metric in speed if metric.name in taken]
        if "ttft-chat" in taken:
            metrics.append(Metric("ttft-chat", "time to first token, short chat", "ms", Better.LOWER, 1.0))
        metrics.append(Metric("start-up", "start-up to a healthy answer", "ms", Better.LOWER, 1.0))
        for phase in self.phases:
            setup = phase.setup
            metrics.append(Metric(phase.memory_metric, f"peak memory, {setup.slots} x {setup.context} tokens", "MiB",
                                  Better.LOWER, 1.0))
        return [metric for metric in metrics if self.wants(metric.name)]
