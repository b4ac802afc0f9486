"""Streamed HTTP requests, timed from the client.

The client shares the cores with the servers, so while a stream runs it does nothing but receive bytes and note the
time; chunks, events and JSON are taken apart afterwards. It is the same client for both servers.
"""

import bisect
import dataclasses
import gc
import json
import selectors
import socket
import time

_DONE = b"data: [DONE]"
_RECEIVE_BYTES = 1 << 16


class RequestFailed(RuntimeError):
    pass


@dataclasses.dataclass
class StreamResult:
    """What one request gave. Times are seconds since the first request of its batch was sent."""

    token_times: list  # one entry per event that carried text
    first_time: float  # of the first event with text or a reason to finish: a token may be no text
    end_time: float  # of the last byte
    complete: bool  # False: the client left first
    prompt_tokens: int = 0  # 0 where not complete
    completion_tokens: int = 0
    cached_tokens: int = 0


class _Stream:
    def __init__(self, port, path, body):
        payload = json.dumps(body).encode()
        head = (f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(payload)}\r\nConnection: close\r\n\r\n")
        self.request = head.encode() + payload
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.pieces = []  # (time, bytes)
        self.tail = b""
        self.complete = False

    def receive(self):
        """Returns whether the stream goes on."""
        data = self.socket.recv(_RECEIVE_BYTES)
        now = time.perf_counter()
        if not data:
            self.complete = True
            return False
        self.pieces.append((now, data))
        seen = self.tail + data
        self.complete = _DONE in seen
        self.tail = seen[-len(_DONE):]
        return not self.complete


def run_streams(port, path, bodies, *, until, timeout):
    """Sends all bodies at once. `until`: "all" waits for every stream; "first" leaves the others as soon as one ends.

    Raises RequestFailed when a request is refused or nothing arrives for `timeout` seconds.
    """
    streams = [_Stream(port, path, body) for body in bodies]
    selector = selectors.DefaultSelector()
    gc.disable()
    try:
        begin = time.perf_counter()
        for stream in streams:
            stream.socket.sendall(stream.request)
            selector.register(stream.socket, selectors.EVENT_READ, stream)
        ended = 0
        while selector.get_map():
            ready = selector.select(timeout)
            if not ready:
                raise RequestFailed(f"no byte from port {port} for {timeout} s")
            for key, _ in ready:
                if not key.data.receive():
                    selector.unregister(key.data.socket)
                    ended += 1
            if until == "first" and ended:
                break
    finally:
        gc.enable()
        selector.close()
        for stream in streams:
            stream.socket.close()
    return [_parse(stream, begin) for stream in streams]


def get(port, path, body=None, timeout=60):
    """A small request outside of measurements. Returns (status, decoded JSON or text)."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
        payload = b"" if body is None else json.dumps(body).encode()
        head = (f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\nConnection: close\r\n\r\n")
        connection.sendall(head.encode() + payload)
        received = b""
        while piece := connection.recv(_RECEIVE_BYTES):
            received += piece
    status, content = _split_answer(received)
    text = content.decode(errors="replace")
    try:
        return status, json.loads(text)
    except ValueError:
        return status, text


def _split_answer(received):
    head, _, content = received.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    if len(words) < 2 or not words[1].isdigit():
        raise RequestFailed(f"not an HTTP answer: {received[:200]!r}")
    if b"transfer-encoding: chunked" in head.lower():
        content = b"".join(piece for piece, _ in _chunks(received, len(head) + 4))
    return int(words[1]), content


def _chunks(received, position):
    """The chunks of a chunked body that arrived whole, each with the offset of its end in `received`."""
    while (line_end := received.find(b"\r\n", position)) >= 0:
        size = int(received[position:line_end].split(b";")[0], 16)
        begin, end = line_end + 2, line_end + 2 + size
        if size == 0 or end > len(received):
            return
        yield received[begin:end], end
        position = end + 2


def _parse(stream, begin):
    received = b"".join(data for _, data in stream.pieces)
    offsets, total = [], 0
    for _, data in stream.pieces:
        total += len(data)
        offsets.append(total)

    def time_of(offset):
        return stream.pieces[bisect.bisect_left(offsets, offset)][0] - begin

    end_time = stream.pieces[-1][0] - begin if stream.pieces else 0.0
    result = StreamResult([], end_time, end_time, stream.complete)
    if not received and not stream.complete:
        return result
    head_end = received.find(b"\r\n\r\n") + 4
    status, content = _split_answer(received)
    if status != 200:
        raise RequestFailed(f"status {status}: {content[:500].decode(errors='replace')}")
    if b"transfer-encoding: chunked" in received[:head_end].lower():
        chunks = _chunks(received, head_end)
    else:
        chunks = _lines(received, head_end)
    pending = b""
    for piece, offset in chunks:
        *events, pending = (pending + piece).split(b"\n\n")
        for event in events:
            _read_event(event.strip(), time_of(offset), result)
    if stream.complete and not result.completion_tokens:
        raise RequestFailed(f"the stream ended without usage: {received[-500:].decode(errors='replace')}")
    return result


def _lines(received, position):
    while (end := received.find(b"\n\n", position)) >= 0:
        yield received[position:end + 2], end + 2
        position = end + 2


def _read_event(event, at, result):
    if not event.startswith(b"data:") or event == _DONE:
        return
    value = json.loads(event[len(b"data:"):])
    if "error" in value:
        raise RequestFailed(str(value["error"]))
    for choice in value.get("choices", ()):
        text = choice.get("text") or (choice.get("delta") or {}).get("content")
        if text or choice.get("finish_reason"):
            result.first_time = min(result.first_time, at)
        if text:
            result.token_times.append(at)
    if usage := value.get("usage"):
        result.prompt_tokens = usage["prompt_tokens"]
        result.completion_tokens = usage["completion_tokens"]
        result.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
