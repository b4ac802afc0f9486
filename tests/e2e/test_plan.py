"""`hisparse plan`: on this machine it says what a server then takes; for GPUs it needs a config.json alone."""

import json
import subprocess

import pytest
import requests

from conftest import BINARY, SMOLLM2, TINY_MODEL, Server

OWNERS = ("weights", "activations", "kv_slab", "kv_host", "tables", "staging", "metadata")
GLM_5_3 = {
    "architectures": ["GlmMoeDsaForCausalLM"], "num_hidden_layers": 78, "hidden_size": 6144, "num_attention_heads": 64,
    "q_lora_rank": 2048, "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
    "index_n_heads": 32, "index_head_dim": 128, "index_topk": 2048, "index_topk_freq": 4, "index_skip_topk_offset": 3,
    "intermediate_size": 12288, "moe_intermediate_size": 2048, "n_routed_experts": 256, "num_experts_per_tok": 8,
    "n_shared_experts": 1, "first_k_dense_replace": 3, "num_nextn_predict_layers": 1, "vocab_size": 154880,
    "max_position_embeddings": 1048576,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}


def run(*flags):
    return subprocess.run([BINARY, "plan", *map(str, flags)], capture_output=True, text=True, timeout=120)


def plan(*flags):
    done = run(*flags, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("tiers", ["off", "host", "disk"])
@pytest.mark.parametrize("model", [TINY_MODEL, SMOLLM2], ids=["tiny", "smollm2"])
def test_the_ledger_of_a_running_server_is_the_plan(model, tiers, tmp_path):
    if not model:
        pytest.skip("HISPARSE_SMOLLM2 does not name the model file")
    flags = ["--model", model, "--max-model-len", "2048", "--max-num-seqs", "4", "--block-size", "32",
             "--max-num-batched-tokens", "256", "--kv-cache-memory-bytes", "24MiB"]
    flags += {"off": [], "host": ["--kv-tiering", "hybrid", "--swap-space", "0.05"],
              "disk": ["--kv-tiering", "hybrid", "--swap-space", "0", "--kv-disk-path", tmp_path,
                       "--kv-disk-space", "64MiB", "--kv-disk-persist", "--kv-cache-profiling-window", "1000"]}[tiers]
    planned = plan(*flags, "--gpus", "cpu")
    running = Server(flags[1], *flags[2:])
    owners = planned["memory"]["owners"]
    assert set(owners) == set(OWNERS)
    for owner in OWNERS:
        for source in ("planned", "allocated"):
            counted = running.metric("hisparse_memory_bytes", owner=owner, source=source)
            assert owners[owner] == pytest.approx(counted, rel=0.01), (owner, source)
    assert planned["kv"]["resident_bytes_rank"] == running.metric(
        "hisparse_memory_bytes", owner="kv_slab", source="allocated")
    model_card = requests.get(running.url + "/v1/models", timeout=30).json()["data"][0]
    assert planned["max_model_len"] == model_card["max_model_len"] == 2048
    code, log = running.stop()
    assert code == 0, log
    # The flags that it suggests make the same plan again.
    again = plan(*[word for flag in planned["serve_flags"] for word in flag.split(" ", 1)])
    assert again["memory"]["owners"] == owners
    assert again["contexts"] == planned["contexts"]


def test_a_config_json_alone_is_enough_for_gpus(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(GLM_5_3))
    flags = ("--gpus", "8xH200", "--max-model-len", "1000000", "--host-gib", "384")
    by_folder = plan("--model", tmp_path, *flags)
    by_file = plan("--model", tmp_path / "config.json", *flags)
    assert by_folder["kv"] == by_file["kv"]
    assert by_file["kv"]["bytes_per_token_rank"] == 53940
    assert plan("--model", tmp_path, *flags, "--num-speculative-tokens", "3")["kv"]["bytes_per_token_rank"] == 54728
    longest = by_file["contexts"][-1]
    assert (longest["requests"], longest["limit"]) == (8, "host memory")
    text = run("--model", tmp_path, *flags).stdout
    assert "nothing is measured" in text and "Not in this build: CUDA" in text


def test_what_cannot_be_planned_is_told(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**GLM_5_3, "architectures": ["Glm5NextForConditionalGeneration"]}))
    cases = {
        ("--model", tmp_path): "--gpus",
        ("--model", tmp_path, "--gpus", "8xH200"): "known are LlamaForCausalLM",
        ("--model", tmp_path / "none.json", "--gpus", "8xH200"): "none.json",
        ("--model", tmp_path / "none.gguf"): "none.gguf",
        ("--model", TINY_MODEL, "--gpus", "8xA100"): "such as 8xH200",
        ("--model", TINY_MODEL, "--max-model-len", "100000000"): "--max-model-len",
    }
    for flags, words in cases.items():
        done = run(*flags)
        assert done.returncode in (1, 2) and words in done.stderr, (flags, done.stderr)
        assert done.stdout == ""
