"""`hisparse bench`: figures and counts, refusals, an end in the middle. No test depends on a time."""

import json
import signal
import subprocess

import pytest

from conftest import BINARY, SMOLLM2, TINY_MODEL

OUTPUT_LEN = 64
ITERATIONS = 2


def bench(*flags, model=TINY_MODEL):
    return subprocess.run([BINARY, "bench", "--model", model, *flags], capture_output=True, text=True, timeout=300)


def check_result(result, batch, input_len):
    assert (result["batch_size"], result["input_len"], result["output_len"]) == (batch, input_len, OUTPUT_LEN)
    assert result["iterations"] == ITERATIONS
    assert result["prompt_tokens"] == ITERATIONS * batch * input_len
    assert result["output_tokens"] == ITERATIONS * batch * OUTPUT_LEN
    decode, gaps, first = result["decode_tokens_per_s"], result["itl_ms"], result["ttft_ms"]
    # Steady are the tokens while the whole batch runs. On a busy machine one request may have ended before the next
    # one has begun: then there are none, and no speed is made up.
    steady = result["steady_tokens"]
    assert (0 if batch > 1 else 1) <= steady <= ITERATIONS * batch * (OUTPUT_LEN - 1)
    if steady:
        assert 0 < decode["min"] <= decode["median"] <= decode["max"]
        assert 0 <= gaps["p50"] <= gaps["p90"] <= gaps["p99"]
    else:
        assert decode is None and gaps is None
    assert 0 < first["p50"] <= first["p99"]
    assert result["prefill_tokens_per_s"] > 0 and result["total_tokens_per_s"] > 0


@pytest.mark.parametrize("model", [TINY_MODEL, SMOLLM2], ids=["tiny", "smollm2"])
def test_bench_measures_every_point(model, tmp_path):
    if not model:
        pytest.skip("HISPARSE_SMOLLM2 does not name the model file")
    path = tmp_path / "bench.json"
    run = bench("--batch-sizes", "1,2", "--input-lens", "24,40", "--output-len", str(OUTPUT_LEN),
                "--num-iters", str(ITERATIONS), "--seed", "7", "--output-json", path, model=model)
    assert run.returncode == 0, run.stderr
    rows = [line for line in run.stdout.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 4 and len({len(row) for row in rows}) == 1
    assert "8 of 8: batch 2, context 40" in run.stderr
    report = json.loads(path.read_text())
    assert report["complete"] is True and report["version"]
    assert report["machine"]["isa_level"] and report["machine"]["logical_cpus"] >= 1
    assert report["model"]["file"] == str(model).rsplit("/", 1)[-1]
    assert {"digest", "architecture", "parameters", "dtype", "kv_cache_dtype"} <= set(report["model"])
    settings = report["settings"]
    assert settings["batch_sizes"] == [1, 2] and settings["input_lens"] == [24, 40] and settings["seed"] == 7
    assert settings["enable_prefix_caching"] is False and settings["threads"] >= 1
    points = [(1, 24), (2, 24), (1, 40), (2, 40)]
    assert len(report["results"]) == len(points)
    for result, point in zip(report["results"], points):
        check_result(result, *point)


def test_bench_prints_only_json_when_asked(tmp_path):
    run = bench("--batch-sizes", "3", "--output-len", "2", "--num-iters", "1", "--output-json", "-")
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert report["settings"]["input_lens"] == [512]
    assert report["results"][0]["output_tokens"] == 3 * 2


def test_bench_of_prefill_alone_has_no_decode():
    run = bench("--batch-sizes", "1,2", "--input-lens", "8", "--output-len", "1", "--num-iters", "1",
                "--output-json", "-")
    assert run.returncode == 0, run.stderr
    for result in json.loads(run.stdout)["results"]:
        assert result["output_tokens"] == result["batch_size"]
        assert result["decode_tokens_per_s"] is None and result["itl_ms"] is None


def test_bench_decodes_behind_injected_kv_at_any_length(tmp_path):
    # More than the model was made for (8192), and than the slab holds.
    run = bench("--inject-kv", "--batch-sizes", "1", "--input-lens", "20000", "--output-len", "8", "--num-iters", "1",
                "--max-model-len", "20010", "--kv-cache-memory-bytes", "1MiB",
                "--kv-tiering", "hybrid", "--swap-space", "0", "--kv-disk-path", tmp_path, "--kv-disk-space", "1GiB",
                "--output-json", "-")
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert report["settings"]["inject_kv"] is True
    result = report["results"][0]
    assert result["output_tokens"] == 8 and result["decode_tokens_per_s"]["median"] > 0
    assert result["ttft_ms"] is None and result["prefill_tokens_per_s"] is None
    assert result["total_tokens_per_s"] is None


@pytest.mark.parametrize("flags,code,words", [
    (["--input-lens", "8100"], 1, "a prompt may have 8064 tokens"),
    (["--input-lens", "900", "--max-model-len", "1000"], 2, "a prompt may have 872 tokens"),
    (["--batch-sizes", "64", "--kv-cache-memory-bytes", "1MiB"], 1, "use --kv-cache-memory-bytes"),
    (["--batch-sizes", "1000"], 2, "the largest of --batch-sizes"),
    (["--output-json", "/no/such/folder/bench.json"], 1, "/no/such/folder/bench.json"),
])
def test_a_bench_that_cannot_be_says_what_to_change(flags, code, words):
    run = bench(*flags)
    assert run.returncode == code
    assert words in run.stderr and run.stdout == ""


def test_an_interrupted_bench_prints_what_it_has(tmp_path):
    path = tmp_path / "bench.json"
    process = subprocess.Popen(
        [BINARY, "bench", "--model", TINY_MODEL, "--batch-sizes", "1", "--input-lens", "16", "--output-len", "16",
         "--num-iters", "1000", "--output-json", path],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if "bench: 1 of 1000" in line:
            process.send_signal(signal.SIGINT)
            break
    table, log = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT, log
    assert "Not complete" in table
    report = json.loads(path.read_text())
    assert report["complete"] is False
    assert 1 <= report["results"][0]["iterations"] < 1000
    assert report["results"][0]["output_tokens"] == 16 * report["results"][0]["iterations"]
