#!/usr/bin/env python3
"""Shows on SmolLM2 what KV tiers cost and save at length, and fails unless every answer is the same.

  together  conversations at the same time: all resident; a slab of a ninth of what they need with host memory; the same
            slab with disk alone
  again     a prompt that comes again when its pages have left the slab: computed again, from host memory, from disk

    build/client-venv/bin/python scripts/tiers_at_length.py [together] [again] [--prompt-tokens 7500] ...

scripts/test.sh makes that environment (tests/e2e/requirements.txt) and the server. The model is the file that
HISPARSE_SMOLLM2 names, or what scripts/fetch_model.sh prints. At full length it takes about ten minutes.
"""

import argparse
import concurrent.futures
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/e2e"))
from conftest import Server  # noqa: E402

GIB = 1 << 30
PARTS = ("together", "again")
PATIENCE_SECONDS = 3600
# Pages on disk are padded, layer by layer.
DISK_PADDING = 2


class Setup:
    """The options, and the sizes that follow from them."""

    def __init__(self, options, model):
        self.options = options
        self.model = model
        self.pages = -(-(options.prompt_tokens + options.new_tokens) // options.block_size)  # of one conversation
        with self.serve() as probe:
            self.page_bytes = int(probe.server.metric("hisparse_kv_page_bytes"))

    def prompt(self, number):
        draws = random.Random(number)
        return [draws.randrange(1000, 40000) for _ in range(self.options.prompt_tokens)]

    def serve(self, *flags):
        options = self.options
        return Running(Server(self.model, "--served-model-name", "smollm2", "--max-num-seqs", str(options.conversations),
                              "--max-model-len", str(self.pages * options.block_size), "--block-size",
                              str(options.block_size), *flags))

    def slab(self, pages):
        return ("--kv-resident-bytes", str(pages * self.page_bytes))

    def host(self, pages):
        return ("--kv-tiering", "hybrid", "--swap-space", str(pages * self.page_bytes / GIB))

    def disk(self, pages, folder):
        return ("--kv-tiering", "hybrid", "--swap-space", "0", "--kv-disk-path", folder, "--kv-disk-space",
                str(DISK_PADDING * pages * self.page_bytes))


class Running:
    """A server that is stopped at the end of a with block, and what can be asked of it."""

    def __init__(self, server):
        self.server = server
        self.api = server.client().with_options(timeout=PATIENCE_SECONDS)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        code, log = self.server.stop()
        if kind is None:
            check(code == 0, f"the server ended with {code}:\n{log}")

    def answer(self, prompt, tokens):
        """Text, cached tokens, and seconds to the first text."""
        begin, first, text, usage = time.monotonic(), None, "", None
        for chunk in self.api.completions.create(model="smollm2", prompt=prompt, temperature=0, max_tokens=tokens,
                                                 stream=True, stream_options={"include_usage": True},
                                                 extra_body={"ignore_eos": True}):
            usage = chunk.usage or usage
            text += chunk.choices[0].text if chunk.choices else ""
            if text and first is None:
                first = time.monotonic() - begin
        check(usage is not None and usage.completion_tokens == tokens, f"not {tokens} tokens: {usage}")
        return text, usage.prompt_tokens_details.cached_tokens, first

    def moved(self, source, target):
        return self.server.metric("hisparse_kv_moved_pages_total", **{"from": source, "to": target})

    def hits(self, tier):
        return self.server.metric("hisparse_prefix_cache_hit_pages_total", tier=tier)

    def peak_bytes(self):
        status = pathlib.Path(f"/proc/{self.server.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) * 1024


def check(right, what):
    if not right:
        sys.exit(f"error: {what}")


def ask_together(setup, running):
    """The answers, and the seconds that all of them took."""
    options = setup.options
    prompts = [setup.prompt(number) for number in range(options.conversations)]
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(options.conversations) as threads:
        texts = [text for text, _, _ in threads.map(lambda prompt: running.answer(prompt, options.new_tokens), prompts)]
    return texts, time.monotonic() - begin


def check_tiers(running, name):
    """What the counters must show behind a run over tiers; the note for the table."""
    check(running.server.metric("hisparse_kv_lost_pages_total") == 0, "pages were lost")
    pages = int(running.moved("resident", "host" if name == "host memory" else "disk"))
    streamed = running.server.metric("hisparse_kv_streamed_bytes_total", step="decode")
    check(pages > 0, f"{name}: no page has left the slab")
    if name == "host memory":
        return f"{pages} pages to host memory"
    check(streamed > 0, f"{name}: no decode step has read from disk")
    return f"{pages} pages to disk, decode read {streamed / GIB:.2f} GiB"


def together(setup, folder):
    options = setup.options
    need = options.conversations * setup.pages
    slab = max(need // 9, 2 * options.conversations)  # everybody writes a page
    print(f"\n{options.conversations} conversations of {options.prompt_tokens} tokens, {options.new_tokens} more each; "
          f"{need} pages of {options.block_size} tokens, the slab has {slab} ({need / slab:.1f} times fewer)\n")
    print("| | seconds | tokens/s | of all resident | peak memory | tokens | |\n|---|---|---|---|---|---|---|")
    layouts = {"all resident": setup.slab(need + options.conversations),
               "host memory": setup.slab(slab) + setup.host(need + options.conversations),
               "disk alone": setup.slab(slab) + setup.disk(need + options.conversations, folder)}
    expected, rate_of_resident = None, 0.0
    for name, flags in layouts.items():
        with setup.serve(*flags) as running:
            texts, seconds = ask_together(setup, running)
            note = "" if expected is None else check_tiers(running, name)
            rate = options.conversations * options.new_tokens / seconds
            if expected is None:
                expected, rate_of_resident = texts, rate
            check(texts == expected, f"{name}: the answers differ from those of the resident run")
            print(f"| {name} | {seconds:.1f} | {rate:.2f} | {rate / rate_of_resident:.2f} | "
                  f"{running.peak_bytes() / GIB:.2f} GiB | the same | {note} |", flush=True)


def ask_again(setup, running, tier):
    """The first answer and the second one, what the second one found, and the seconds to its first token. Between the
    two, other prompts push the pages out of the slab."""
    options = setup.options
    first, cached, _ = running.answer(setup.prompt(0), options.new_tokens)
    check(cached == 0, "a first prompt was found in the cache")
    for number in (1, 2):
        running.answer(setup.prompt(number), options.new_tokens)
    before = running.hits(tier) if tier else 0
    again, cached, seconds = running.answer(setup.prompt(0), options.new_tokens)
    whole = (options.prompt_tokens - 1) // options.block_size
    check(cached == (whole * options.block_size if tier else 0), f"{cached} tokens were found in the cache")
    found = int(running.hits(tier) - before) if tier else 0
    # A few may still be in the slab: which pages go first also depends on which copies are ready.
    check(not tier or 2 * found > whole, f"only {found} of {whole} pages were found in the tier {tier}")
    return first, again, f"{cached} | {found} of {whole}", seconds


def again(setup, folder):
    options = setup.options
    slab = setup.pages + 2
    room = 4 * setup.pages
    print(f"\nA prompt of {options.prompt_tokens} tokens again, when others have taken its place in the slab\n")
    print("| | first token after, seconds | times faster | cached tokens | pages found there | tokens |\n|---|---|---|---|---|---|")
    layouts = {"computed again": (None, setup.slab(slab)),
               "from host memory": ("host", setup.slab(slab) + setup.host(room)),
               "from disk": ("disk", setup.slab(slab) + setup.disk(room, folder))}
    expected, recompute = None, 0.0
    for name, (tier, flags) in layouts.items():
        with setup.serve(*flags) as running:
            first, second, found, seconds = ask_again(setup, running, tier)
        if expected is None:
            expected, recompute = first, seconds
        check(first == second == expected, f"{name}: the answers differ")
        print(f"| {name} | {seconds:.3f} | {recompute / seconds:.1f} | {found} | the same |", flush=True)


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="together, again (default: both)")
    parser.add_argument("--prompt-tokens", type=int, default=7500)
    parser.add_argument("--new-tokens", type=int, default=24)
    parser.add_argument("--conversations", type=int, default=8)
    parser.add_argument("--block-size", type=int, default=64, help="tokens in a page; 16 for short prompts")
    parser.add_argument("--folder", help="for the file of the disk tier (default: a new one in /var/tmp)")
    options = parser.parse_args()
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"there is no part {unknown[0]}: choose from {', '.join(PARTS)}")
    if min(options.prompt_tokens, options.new_tokens, options.conversations, options.block_size) < 1:
        parser.error("counts must be 1 or more")
    return options


def main():
    options = read_options()
    model = os.environ.get("HISPARSE_SMOLLM2") or subprocess.run(
        [ROOT / "scripts/fetch_model.sh"], check=True, text=True, stdout=subprocess.PIPE).stdout.strip()
    setup = Setup(options, model)
    with tempfile.TemporaryDirectory(dir=options.folder or "/var/tmp", prefix="hisparse-tiers.") as folder:
        for part in options.parts or PARTS:
            {"together": together, "again": again}[part](setup, folder)


if __name__ == "__main__":
    main()
