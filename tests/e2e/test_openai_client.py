"""The official client against the real binary: chat, completions, streams, errors."""

import json

import openai
import pytest
import requests

HELLO = [{"role": "user", "content": "Say hello."}]


def test_models_list_names_the_served_model(server):
    models = server.client().models.list().data
    assert [model.id for model in models] == ["tiny_llama"]
    assert server.client().models.retrieve("tiny_llama").id == "tiny_llama"


def test_chat_answers_with_usage(server):
    answer = server.client().chat.completions.create(
        model="tiny_llama", messages=HELLO, temperature=0, max_tokens=12)
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason in ("length", "stop")
    assert answer.usage.completion_tokens == 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 12
    assert answer._request_id


def test_stream_equals_the_whole_answer(server):
    client = server.client()
    options = dict(model="tiny_llama", messages=HELLO, temperature=0.8, seed=7, max_tokens=40)
    whole = client.chat.completions.create(**options)
    chunks = list(client.chat.completions.create(**options, stream=True,
                                                 stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == \
        [whole.choices[0].finish_reason]
    assert len({c.id for c in chunks}) == 1
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert all(c.usage is None for c in chunks[:-1])


def test_stream_without_usage_has_none(server):
    chunks = list(server.client().chat.completions.create(
        model="tiny_llama", messages=HELLO, temperature=0, max_tokens=5, stream=True))
    assert all(c.usage is None and c.choices for c in chunks)


def test_completions_plain_and_streamed(server):
    client = server.client()
    options = dict(model="tiny_llama", prompt="The server", temperature=0, max_tokens=10)
    whole = client.completions.create(**options)
    streamed = "".join(c.choices[0].text for c in client.completions.create(**options, stream=True))
    assert whole.choices[0].text == streamed
    assert whole.object == "text_completion"


def test_token_ids_are_a_prompt(server):
    answer = server.client().completions.create(model="tiny_llama", prompt=[10, 20, 30], max_tokens=3,
                                                temperature=0)
    assert answer.usage.prompt_tokens == 3


def test_stop_string_ends_the_text_before_it(server):
    client = server.client()
    options = dict(model="tiny_llama", prompt="The server", temperature=0, max_tokens=60)
    text = client.completions.create(**options).choices[0].text
    stop = text[len(text) // 2:len(text) // 2 + 2]
    stopped = client.completions.create(**options, stop=[stop])
    assert stopped.choices[0].text == text[:text.index(stop)]
    assert stopped.choices[0].finish_reason == "stop"
    chunks = list(client.completions.create(**options, stop=stop, stream=True))
    assert "".join(c.choices[0].text for c in chunks) == stopped.choices[0].text


def test_same_prompt_again_is_a_prefix_hit_with_the_same_answer(server):
    client = server.client()
    options = dict(model="tiny_llama", prompt=[i % 400 + 10 for i in range(500)], temperature=0, max_tokens=8)
    cold = client.completions.create(**options)
    warm = client.completions.create(**options)
    assert warm.usage.prompt_tokens_details.cached_tokens == 448
    assert warm.choices[0].text == cold.choices[0].text
    other_tenant = client.completions.create(**options, extra_body={"cache_salt": "tenant"})
    assert other_tenant.usage.prompt_tokens_details.cached_tokens == 0
    assert other_tenant.choices[0].text == cold.choices[0].text


@pytest.mark.parametrize("body,error,param", [
    (dict(max_tokens=0), openai.BadRequestError, "max_tokens"),
    (dict(temperature=-1), openai.BadRequestError, "temperature"),
    (dict(top_p=0), openai.BadRequestError, "top_p"),
    (dict(n=2), openai.BadRequestError, "n"),
    (dict(logprobs=True), openai.BadRequestError, "logprobs"),
    (dict(stop=[""]), openai.BadRequestError, "stop"),
    (dict(max_tokens=5000), openai.BadRequestError, None),
])
def test_errors_have_the_openai_shape(server, body, error, param):
    with pytest.raises(error) as caught:
        server.client().chat.completions.create(**{"model": "tiny_llama", "messages": HELLO, **body})
    assert caught.value.body["type"] == "invalid_request_error"
    assert caught.value.body["message"]
    if param:
        assert caught.value.body["param"] == param


def test_unknown_model_is_not_found(server):
    with pytest.raises(openai.NotFoundError) as caught:
        server.client().chat.completions.create(model="gpt-4", messages=HELLO)
    assert caught.value.code == "model_not_found"


def test_too_long_a_prompt_says_the_limit(server):
    with pytest.raises(openai.BadRequestError) as caught:
        server.client().completions.create(model="tiny_llama", prompt=[5] * 5000, max_tokens=5)
    assert caught.value.code == "context_length_exceeded"
    assert "maximum context length is 4096 tokens" in caught.value.body["message"]


def test_unknown_fields_and_nulls_are_ignored(server):
    response = requests.post(server.url + "/v1/chat/completions", timeout=60, json={
        "messages": HELLO, "max_tokens": 2, "stop": None, "logit_bias": None, "some_future_field": {"a": [1]},
        "n": 1, "presence_penalty": 0, "user": "u", "metadata": {}})
    assert response.status_code == 200, response.text


def test_bad_bodies_are_400_and_the_next_request_works(server):
    session = requests.Session()
    for body in (b"", b"{", b"[]", b"\xff\xfe", b'{"messages": 5}', b'{"messages":[]}', b"[" * 100000):
        response = session.post(server.url + "/v1/chat/completions", data=body, timeout=60,
                                headers={"Content-Type": "application/json"})
        assert response.status_code == 400, body[:20]
        assert set(json.loads(response.text)["error"]) >= {"message", "type", "param", "code"}
    assert session.get(server.url + "/health", timeout=60).status_code == 200
    test_chat_answers_with_usage(server)


def test_capital_of_france(smollm2_server):
    answer = smollm2_server.client().chat.completions.create(
        model="smollm2", temperature=0,
        messages=[{"role": "user", "content": "What is the capital of France?"}])
    assert "Paris" in answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"
