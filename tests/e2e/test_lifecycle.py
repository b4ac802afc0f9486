"""The process: start, refusals, clients that vanish, drain."""

import json
import socket
import subprocess
import threading
import time

import openai
import pytest
import requests

from conftest import BINARY, TINY_MODEL, Server

STREAMS = 100


def open_stream(port, max_tokens):
    """A raw streaming request; returns the socket after the first bytes of the answer."""
    body = json.dumps({"prompt": [7] * 20, "max_tokens": max_tokens, "stream": True, "ignore_eos": True})
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.sendall((f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                        f"Content-Length: {len(body)}\r\n\r\n{body}").encode())
    assert connection.recv(64).startswith(b"HTTP/1.1 200")
    return connection


def test_killing_a_hundred_streaming_clients_leaves_no_referenced_page():
    server = Server(TINY_MODEL, "--max-num-seqs", "128", "--max-model-len", "8192")
    try:
        before = server.metric("hisparse_requests_finished_total", reason="abort")
        sockets = []
        openers = [threading.Thread(target=lambda: sockets.append(open_stream(server.port, 8000)))
                   for _ in range(STREAMS)]
        for opener in openers:
            opener.start()
        for opener in openers:
            opener.join()
        assert len(sockets) == STREAMS
        deadline = time.monotonic() + 60
        while server.metric("hisparse_requests_running") < STREAMS and time.monotonic() < deadline:
            time.sleep(0.05)
        assert server.metric("hisparse_requests_running") == STREAMS
        assert server.metric("hisparse_kv_referenced_pages") > 0
        for connection in sockets:
            connection.close()
        server.wait_for_metric("hisparse_kv_referenced_pages", 0)
        server.wait_for_metric("hisparse_requests_running", 0)
        assert server.metric("hisparse_requests_finished_total", reason="abort") == before + STREAMS
        assert server.metric("hisparse_requests_waiting") == 0
    finally:
        code, log = server.stop()
    assert code == 0, log


def test_sigterm_drains_the_open_stream():
    server = Server(TINY_MODEL, "--max-model-len", "2048")
    chunks = []

    def read():
        stream = server.client().completions.create(model="tiny_llama", prompt="x", max_tokens=400, stream=True,
                                                    extra_body={"ignore_eos": True})
        for chunk in stream:
            chunks.append(chunk)

    reader = threading.Thread(target=read)
    reader.start()
    while not chunks:
        time.sleep(0.01)
    server.terminate()
    # The listener answers until the stream has ended: not ready, and no new work.
    seen = set()
    while reader.is_alive():
        try:
            seen.add(requests.get(server.url + "/ready", timeout=10).status_code)
            refused = requests.post(server.url + "/v1/completions", json={"prompt": "x"}, timeout=10)
            seen.add((refused.status_code, refused.json()["error"]["code"]))
        except requests.ConnectionError:
            break
    assert seen <= {200, 503, (200, None), (503, "draining")} and 503 in seen and (503, "draining") in seen
    reader.join(timeout=60)
    code, log = server.stop()
    assert code == 0, log
    assert chunks[-1].choices[0].finish_reason == "length"


def test_sigterm_while_loading_ends_the_process():
    process = subprocess.Popen([BINARY, "serve", "--model", TINY_MODEL, "--port", "0"], stderr=subprocess.PIPE)
    process.terminate()
    process.stderr.read()
    assert process.wait(timeout=60) in (0, -15)


def test_a_chat_without_max_tokens_fits_a_small_cache():
    server = Server(TINY_MODEL, "--max-model-len", "8192", "--kv-cache-memory-bytes", "1MiB")
    try:
        answer = server.client().chat.completions.create(
            model="tiny_llama", messages=[{"role": "user", "content": "Hi"}], temperature=0)
        assert answer.choices[0].finish_reason in ("stop", "length")
    finally:
        server.stop()


def test_a_request_that_never_fits_is_refused_and_the_rest_served():
    server = Server(TINY_MODEL, "--max-model-len", "8192", "--kv-cache-memory-bytes", "1MiB")
    try:
        with pytest.raises(openai.BadRequestError) as caught:
            server.client().completions.create(model="tiny_llama", prompt=[5] * 4000, max_tokens=4000)
        assert "--kv-cache-memory-bytes" in caught.value.body["message"]
        assert server.client().completions.create(model="tiny_llama", prompt="x", max_tokens=3).usage
    finally:
        server.stop()


def test_a_wrong_key_is_401_and_the_right_one_is_served():
    server = Server(TINY_MODEL, env={"HISPARSE_API_KEY": "secret"})
    try:
        with pytest.raises(openai.AuthenticationError) as caught:
            server.client().models.list()
        assert caught.value.code == "invalid_api_key"
        assert server.client(api_key="secret").models.list().data
        assert requests.get(server.url + "/health", timeout=30).status_code == 200
    finally:
        server.stop()


@pytest.mark.parametrize("flags,words", [
    (["serve", "--model", "/no/such/file.gguf"], "/no/such/file.gguf"),
    (["serve", "--model", TINY_MODEL, "--tensor-parallel-size", "3"], "use --tensor-parallel-size 1, 2, 4, 8"),
    (["serve", "--model", TINY_MODEL, "--max-model-len", "100000"], "--max-model-len"),
    (["serve", "--model", TINY_MODEL, "--kv-cache-memory-bytes", "100TiB"], "--kv-cache-memory-bytes"),
    (["serve", "--model", TINY_MODEL, "--prot", "80"], "did you mean --port"),
    (["serve", "--model", __file__], "test_lifecycle.py"),
])
def test_a_start_that_cannot_work_says_what_to_change(flags, words):
    result = subprocess.run([BINARY, *flags], capture_output=True, text=True, timeout=60)
    assert result.returncode in (1, 2)
    assert words in result.stderr


def test_a_taken_port_is_named():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        result = subprocess.run([BINARY, "serve", "--model", TINY_MODEL, "--port", str(port)],
                                capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert str(port) in result.stderr


def test_yaml_environment_and_flags_take_precedence_in_this_order(tmp_path):
    config = tmp_path / "server.yaml"
    config.write_text("served-model-name: from-yaml\nmax-model-len: 512\nlog-level: info\n"
                      "enable-prefix-caching: false\n")
    server = Server(TINY_MODEL, "--config", str(config), env={"HISPARSE_MAX_MODEL_LEN": "1024"})
    try:
        model = requests.get(server.url + "/v1/models", timeout=30).json()["data"][0]
        assert (model["id"], model["max_model_len"]) == ("from-yaml", 1024)
        prompt = [7] * 200
        for _ in range(2):
            answer = server.client().completions.create(model="from-yaml", prompt=prompt, max_tokens=1)
            assert answer.usage.prompt_tokens_details.cached_tokens == 0
    finally:
        server.stop()
    config.write_text("max-modell-len: 512\n")
    result = subprocess.run([BINARY, "serve", "--model", TINY_MODEL, "--config", str(config)],
                            capture_output=True, text=True, timeout=60)
    assert result.returncode == 2 and "max-modell-len" in result.stderr


def test_generate_prints_an_answer():
    result = subprocess.run([BINARY, "generate", "--model", TINY_MODEL, "--prompt", "Hi", "--max-tokens", "5"],
                            capture_output=True, timeout=60)
    assert result.returncode == 0 and result.stdout.strip()
    version = subprocess.run([BINARY, "version"], capture_output=True, text=True, timeout=60)
    assert version.stdout.startswith("hisparse ")


def test_tensor_parallel_ranks_serve():
    server = Server(TINY_MODEL, "--tensor-parallel-size", "8", "--dtype", "f32", "--max-model-len", "512")
    alone = Server(TINY_MODEL, "--dtype", "f32", "--max-model-len", "512")
    try:
        options = dict(model="tiny_llama", prompt="The server was cold.", temperature=0, max_tokens=16)
        assert server.client().completions.create(**options).choices[0].text == \
            alone.client().completions.create(**options).choices[0].text
    finally:
        server.stop()
        alone.stop()
