"""KV pages that do not fit: the same answers from host memory and from disk, seen through the API and /metrics."""

import pytest

from conftest import TINY_MODEL, Server

FLAGS = ("--max-model-len", "2048", "--max-num-seqs", "4", "--block-size", "16")
PROMPT = [10 + 7 * i % 400 for i in range(700)]


def ask(server, prompt=PROMPT):
    answer = server.client().completions.create(model="tiny_llama", prompt=prompt, temperature=0, max_tokens=40,
                                                extra_body={"ignore_eos": True})
    return answer.choices[0].text, answer.usage.prompt_tokens_details.cached_tokens


@pytest.fixture(scope="module")
def resident():
    running = Server(TINY_MODEL, *FLAGS)
    page_bytes = int(running.metric("hisparse_kv_page_bytes"))
    texts = [ask(running)[0], ask(running, PROMPT[::-1])[0]]
    code, log = running.stop()
    assert code == 0, log
    return page_bytes, texts


@pytest.mark.parametrize("tier", ["host", "disk"])
def test_answers_do_not_depend_on_where_pages_lie(resident, tier, tmp_path):
    page_bytes, texts = resident
    places = {"host": ("--swap-space", "0.1"),
              "disk": ("--swap-space", "0", "--kv-disk-path", tmp_path, "--kv-disk-space", "64MiB")}[tier]
    running = Server(TINY_MODEL, *FLAGS, "--kv-tiering", "hybrid", "--kv-resident-bytes", str(8 * page_bytes), *places)
    first, cached = ask(running)
    assert (first, cached) == (texts[0], 0)
    assert ask(running, PROMPT[::-1])[0] == texts[1]
    again, cached = ask(running)
    assert again == texts[0]
    assert cached == 688  # 43 whole pages of the 699 tokens that may be reused
    assert running.metric("hisparse_kv_moved_pages_total", **{"from": "resident", "to": tier}) > 30
    assert running.metric("hisparse_prefix_cache_hit_pages_total", tier=tier) > 30
    if tier == "disk":
        assert running.metric("hisparse_kv_streamed_bytes_total", step="decode") > 0
        assert running.metric("hisparse_kv_restore_wait_seconds_total", step="decode") > 0
    assert running.metric("hisparse_kv_replans_total") > 10
    assert running.metric("hisparse_kv_heat_observations_total") > 0
    assert running.metric("hisparse_kv_lost_pages_total") == 0
    assert running.metric("hisparse_preemptions_total") == 0
    assert running.metric("hisparse_requests_finished_total", reason="length", exactness="exact") == 3
    code, log = running.stop()
    assert code == 0, log
    assert list(tmp_path.iterdir()) == []  # the file has no name


def test_a_folder_that_is_not_there_is_named():
    with pytest.raises(AssertionError, match="/nowhere"):
        Server(TINY_MODEL, *FLAGS, "--kv-tiering", "hybrid", "--kv-disk-path", "/nowhere", "--kv-disk-space", "1MiB")
