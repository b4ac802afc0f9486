"""What is measured, and how. Every measurement is the same code for both servers."""

import math

import streams

# Between the first and the last first token of a batch, the streams that have begun go on by a token a step, and a
# server that reads this few prompt tokens a step takes this many steps for the prompts.
_PROMPT_TOKENS_PER_STEP = 480


class Client:
    """Sends to one server. Returns figures; a wrong count of tokens is an error, not a figure."""

    def __init__(self, server, timeout):
        self.server = server
        self._timeout = timeout

    def chat_first_token_ms(self, question):
        body = {"messages": [{"role": "user", "content": question}]} | _options(1)
        return self._run("/v1/chat/completions", [body], "all")[0].first_time * 1000

    def prefill(self, prompt):
        """Prompt tokens over the time until the first token is here."""
        return len(prompt) / self._run("/v1/completions", [{"prompt": prompt} | _options(1)], "all")[0].first_time

    def decode(self, prompts, decode_tokens, windows):
        """Tokens/s of all streams together while all of them decode, `windows` samples of it one after the other, and
        the seconds until the first prompt gave its first token.

        Counted from the moment when the last stream has its first token until a stream ends. Those that begin earlier
        get more tokens, so that they are still there.
        """
        steps_for_prompt = math.ceil(max(map(len, prompts)) / _PROMPT_TOKENS_PER_STEP)
        bodies = [{"prompt": prompt} | _options(decode_tokens + later * steps_for_prompt)
                  for later, prompt in zip(reversed(range(len(prompts))), prompts)]
        results = self._run("/v1/completions", bodies, "first")
        if not all(result.token_times for result in results):
            raise streams.RequestFailed(f"{self.server.name}: a stream ended before the last one began")
        return _rates(results, windows, self.server.name), results[0].first_time

    def _run(self, path, bodies, until):
        results = streams.run_streams(self.server.port, path, bodies, until=until, timeout=self._timeout)
        for result, body in zip(results, bodies):
            if not result.complete:
                continue
            if result.completion_tokens != body["max_tokens"] or result.cached_tokens:
                raise streams.RequestFailed(f"{self.server.name}: asked for {body['max_tokens']} tokens, got {result}")
            if "prompt" in body and result.prompt_tokens != len(body["prompt"]):
                raise streams.RequestFailed(f"{self.server.name}: sent {len(body['prompt'])} tokens, it read {result}")
        return results


def _rates(results, windows, name):
    # The steps of the server show in any stream; the last one to begin is there from the first moment to the last.
    last = max(results, key=lambda result: result.token_times[0])
    end = min(result.token_times[-1] for result in results)
    steps = [at for at in last.token_times if at <= end]
    if len(steps) <= windows:
        raise streams.RequestFailed(f"{name}: a stream ended as the last one began")
    # An event is a token, but for bytes that are not yet a character and for tokens that a slow client got as one: the
    # stream that is complete tells how many tokens an event is.
    complete = [result for result in results if result.complete]
    per_event = sum(r.completion_tokens for r in complete) / sum(len(r.token_times) for r in complete)
    bounds = [steps[(len(steps) - 1) * window // windows] for window in range(windows + 1)]
    rates = []
    for begin, end in zip(bounds, bounds[1:]):
        events = sum(begin < at <= end for result in results for at in result.token_times)
        rates.append(events * per_event / (end - begin))
    return rates


def _options(max_tokens):
    # `cache_prompt` is llama-server's own and ignored by hisparse, which has its prefix cache turned off.
    return {"max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "cache_prompt": False, "stream": True,
            "stream_options": {"include_usage": True}}
