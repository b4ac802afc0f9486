"""KV pages that outlive the process: after an orderly end, after kill -9 at any moment, and with a spoiled file."""

import concurrent.futures
import os
import random
import signal
import time

import pytest

from conftest import TINY_MODEL, Server

BLOCK = 16
# The slab holds the longest prompt, the disk three of them: slots are used again and again.
FLAGS = ("--max-model-len", "1024", "--max-num-seqs", "4", "--block-size", str(BLOCK), "--kv-tiering", "hybrid")
DISK_PAGES = 100
DISK_PAGE_BYTES = 3 * 12288  # three layers of 8 KiB, each with its seal, in multiples of 4 KiB
KILLS = int(os.environ.get("HISPARSE_TEST_KILLS", "50"))
# The first one is asked again after every kill.
PROMPTS = [[(11 + 7 * i * (3 + k) + 13 * k) % 400 + 10 for i in range(90 + 60 * k)] for k in range(8)]


def ask(server, prompt):
    answer = server.client().completions.create(model="tiny_llama", prompt=prompt, temperature=0, max_tokens=12,
                                                extra_body={"ignore_eos": True})
    return answer.choices[0].text, answer.usage.prompt_tokens_details.cached_tokens


@pytest.fixture(scope="module")
def resident():
    running = Server(TINY_MODEL, *FLAGS[:6])
    page_bytes = int(running.metric("hisparse_kv_page_bytes"))
    texts = [ask(running, prompt)[0] for prompt in PROMPTS]
    assert running.stop()[0] == 0
    return page_bytes, texts


def persistent(page_bytes, folder):
    return Server(TINY_MODEL, *FLAGS, "--kv-resident-bytes", str(48 * page_bytes), "--swap-space", "0",
                  "--kv-disk-path", folder, "--kv-disk-space", str(DISK_PAGES * DISK_PAGE_BYTES),
                  "--kv-disk-persist")


def whole_pages(prompt):
    return (len(prompt) - 1) // BLOCK * BLOCK


def kill(server):
    server.process.send_signal(signal.SIGKILL)
    server.process.wait(timeout=30)
    server.process.stderr.close()


def test_an_orderly_restart_keeps_every_page(resident, tmp_path):
    page_bytes, texts = resident
    first = persistent(page_bytes, tmp_path)
    for prompt, text in zip(PROMPTS[:4], texts):
        assert ask(first, prompt) == (text, 0)
    assert first.stop()[0] == 0
    second = persistent(page_bytes, tmp_path)
    assert second.metric("hisparse_kv_adopted_pages_total") > 0
    for prompt, text in zip(PROMPTS[:4], texts):
        assert ask(second, prompt) == (text, whole_pages(prompt))
    assert second.metric("hisparse_prefix_cache_hit_pages_total", tier="disk") > 0
    assert second.metric("hisparse_kv_lost_pages_total") == 0
    assert second.stop()[0] == 0


def test_tokens_and_pages_survive_kills_at_random_moments(resident, tmp_path):
    page_bytes, texts = resident
    seed = random.randrange(1 << 32)
    print("seed", seed)
    moments = random.Random(seed)
    running = persistent(page_bytes, tmp_path)
    assert ask(running, PROMPTS[0])[0] == texts[0]
    running.wait_for_metric("hisparse_kv_unpersisted_pages", 0)
    kill(running)
    for _ in range(KILLS):
        running = persistent(page_bytes, tmp_path)
        assert ask(running, PROMPTS[0]) == (texts[0], whole_pages(PROMPTS[0]))
        others = moments.sample(range(1, len(PROMPTS)), 3)
        with concurrent.futures.ThreadPoolExecutor(len(others)) as pool:
            answers = [pool.submit(ask, running, PROMPTS[k]) for k in others]
            time.sleep(moments.uniform(0.0, 0.15))
            kill(running)
            for k, answer in zip(others, answers):
                if answer.exception() is None:  # it was faster than the kill
                    assert answer.result()[0] == texts[k]
    running = persistent(page_bytes, tmp_path)
    answers = [ask(running, prompt) for prompt in PROMPTS]
    assert [text for text, _ in answers] == texts
    assert answers[0][1] == whole_pages(PROMPTS[0])
    assert running.metric("hisparse_kv_lost_pages_total") == 0
    assert running.stop()[0] == 0


def test_a_flipped_bit_costs_its_page_and_what_is_behind_it(resident, tmp_path):
    page_bytes, texts = resident
    first = persistent(page_bytes, tmp_path)
    # Both take their slots in order, from the first one on.
    assert ask(first, PROMPTS[1])[0] == texts[1]
    first.wait_for_metric("hisparse_kv_unpersisted_pages", 0)
    assert ask(first, PROMPTS[2])[0] == texts[2]
    assert first.stop()[0] == 0
    pages = tmp_path / "hisparse-kv-0.pages"
    assert pages.stat().st_size == 4096 + DISK_PAGES * DISK_PAGE_BYTES
    spoiled = 3  # page of the first prompt, and its slot
    with pages.open("r+b") as file:
        file.seek(4096 + spoiled * DISK_PAGE_BYTES + 100)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 4]))
    second = persistent(page_bytes, tmp_path)
    assert ask(second, PROMPTS[1])[0] == texts[1]
    assert second.metric("hisparse_kv_lost_pages_total") == 1
    assert ask(second, PROMPTS[2]) == (texts[2], whole_pages(PROMPTS[2]))
    # What was before it is still there; what was behind it has been computed again.
    assert second.metric("hisparse_recomputed_tokens_total") > 0
    code, log = second.stop()
    assert code == 0 and "does not hold what was written" in log


def test_what_is_before_a_flipped_bit_stays(resident, tmp_path):
    page_bytes, texts = resident
    first = persistent(page_bytes, tmp_path)
    assert ask(first, PROMPTS[1])[0] == texts[1]
    assert first.stop()[0] == 0
    spoiled = 3
    with (tmp_path / "hisparse-kv-0.pages").open("r+b") as file:
        file.seek(4096 + spoiled * DISK_PAGE_BYTES + 100)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 4]))
    second = persistent(page_bytes, tmp_path)
    assert ask(second, PROMPTS[1])[0] == texts[1]
    lost = second.metric("hisparse_kv_lost_pages_total")
    kill(second)
    # The manifest no longer lists the page; the others are chains again once it has been written anew.
    third = persistent(page_bytes, tmp_path)
    text, cached = ask(third, PROMPTS[1])
    assert (text, lost) == (texts[1], 1)
    assert cached >= spoiled * BLOCK
    assert third.metric("hisparse_kv_lost_pages_total") == 0
    assert third.stop()[0] == 0
