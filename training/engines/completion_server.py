"""A checkpoint behind chat completions on a Unix socket: who has the key of this job asks it, and every answer is kept.

It speaks the part of OpenAI's API that a benchmark needs. A request that asks for what was not granted, or for what an
engine lacks, is refused with a sentence instead of answered otherwise.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socketserver
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from queue import Empty, Queue
from typing import Any, NamedTuple

from specs.stages.base.sampling import digest_ids
from training.engines.batched import Completion
from training.engines.engine import CompletionEngine
from training.engines.sampling_noise import stream_of
from training.engines.token_sampling import TokenSampling

PATH = "/v1/chat/completions"
ROLES = ("system", "user", "assistant")
MOST_BYTES = 4 << 20
"""The limit of one request."""
GATHER_S = 0.2
"""How long a batch that has room waits for the next request: anyone who was answered asks again at about the same
time."""
ANSWER_S = 3600.0
_KNOWN = ("model", "messages", "max_tokens", "max_completion_tokens", "temperature", "top_p", "stop", "seed")
_ONLY: dict[str, tuple[Any, ...]] = {"n": (None, 1), "stream": (None, False)}
MOST_STOPS = 8
CALLS = "calls"
"""The part of a stage's work that the streams of its requests are of. A seed that a request names is not used."""

Message = dict[str, str]
Encode = Callable[[Sequence[Message]], tuple[int, ...]]


class RequestRefusal(Exception):
    """The request is not answered; the message says why."""


class CompletionLimits(NamedTuple):
    """What the stage may have the model do."""

    max_new_tokens: int
    temperature: float | None
    """None: greedy."""
    seed: int
    batch_size: int


class ServedCall(NamedTuple):
    """A request that was answered."""

    id: str
    messages: tuple[Message, ...]
    prompt: tuple[int, ...]
    sampling: TokenSampling
    draw: int
    """How many requests had this prompt before."""
    output: Completion


class _QueuedRequest(NamedTuple):
    messages: tuple[Message, ...]
    prompt: tuple[int, ...]
    sampling: TokenSampling
    draw: int
    answer: Future[ServedCall]


class CompletionServer:
    """Serves an engine while it is entered; the key and all calls are its attributes."""

    def __init__(
        self,
        engine: CompletionEngine,
        encode: Encode,
        granted: CompletionLimits,
        socket: Path,
        on_answers: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Prepare to listen at ``socket``; ``encode`` turns messages into token ids, or raises an error.

        ``on_answers`` gets the number of answers after each batch.
        """
        self._on_answers = on_answers
        self.key = secrets.token_urlsafe(32)
        self.calls: dict[str, ServedCall] = {}
        """The answers by id, in the order in which they were given."""
        self._engine, self._encode, self._granted, self._socket = engine, encode, granted, socket
        self._waiting: Queue[_QueuedRequest | None] = Queue()
        self._asked: Counter[tuple[int, ...]] = Counter()
        self._encoding = threading.Lock()
        self._decoder = threading.Thread(target=self._decode, daemon=True)
        self._server = _Listener(str(socket), _handler(self))
        self._server.daemon_threads = True
        Path(socket).chmod(0o600)

    def __enter__(self) -> CompletionServer:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self._decoder.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._waiting.put(None)
        self._decoder.join()
        with suppress(FileNotFoundError):
            self._socket.unlink()

    def answer(self, request: Any) -> ServedCall:
        """Return the answer to a request, once it is written; raises Refused."""
        wanted = self._parse_request(request)
        self._waiting.put(wanted)
        return wanted.answer.result(ANSWER_S)

    def _parse_request(self, request: Any) -> _QueuedRequest:
        if not isinstance(request, dict):
            raise RequestRefusal("the request is not a JSON object")
        for name, value in request.items():
            if name not in _KNOWN and value not in _ONLY.get(name, (None,)):
                raise RequestRefusal(f"'{str(name)[:40]}' is not supported here")
        messages = _messages(request.get("messages"))
        sampling = self._sampling(request)
        try:
            with self._encoding:
                prompt = self._encode(messages)
        except Exception as error:
            raise RequestRefusal(f"the messages cannot be encoded: {error}") from error
        longest = getattr(getattr(self._engine.model, "config", None), "max_position_embeddings", None)
        if longest is not None and len(prompt) + sampling.max_new_tokens > longest:
            room = f"{len(prompt)} tokens with {sampling.max_new_tokens} to answer"
            raise RequestRefusal(f"the prompt has {room}, the model reads {longest}")
        with self._encoding:
            draw = self._asked[prompt]
            self._asked[prompt] += 1
        return _QueuedRequest(messages, prompt, sampling, draw, Future())

    def _sampling(self, request: dict[str, Any]) -> TokenSampling:
        granted = self._granted
        limits = [request.get(name) for name in ("max_tokens", "max_completion_tokens")]
        most = next((limit for limit in limits if limit is not None), granted.max_new_tokens)
        if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= granted.max_new_tokens:
            raise RequestRefusal(f"max_tokens is {most!r}, the stage grants max_new_tokens {granted.max_new_tokens}")
        temperature, nucleus = request.get("temperature"), request.get("top_p")
        if nucleus not in (None, 1):
            raise RequestRefusal(f"top_p is {nucleus!r}, the stage samples from the whole distribution")
        if temperature is not None and (temperature or None) != granted.temperature:
            text = f"temperature {granted.temperature}" if granted.temperature else "greedy decoding"
            raise RequestRefusal(f"temperature is {temperature!r}, the stage grants {text}")
        stops = request.get("stop") or ()
        stops = (stops,) if isinstance(stops, str) else tuple(stops)
        if len(stops) > MOST_STOPS or not all(stop and type(stop) is str for stop in stops):
            raise RequestRefusal(f"stop must be at most {MOST_STOPS} texts")
        return TokenSampling(most, granted.temperature, stops=stops)

    def _stream(self, request: _QueuedRequest) -> int:
        """Return the stream of a request, which the order of requests with other prompts does not change."""
        return stream_of(self._granted.seed, CALLS, digest_ids(request.prompt), request.draw)

    def _decode(self) -> None:
        """Answer requests in batches that share their sampling settings."""
        current: _QueuedRequest | None = None
        while True:
            first = current or self._waiting.get()
            if first is None:
                return
            current, batch = None, [first]
            while len(batch) < self._granted.batch_size:
                try:
                    following = self._waiting.get(timeout=GATHER_S)
                except Empty:
                    break
                if following is None or following.sampling != first.sampling:
                    current = following
                    if following is None:
                        self._waiting.put(None)
                    break
                batch.append(following)
            self._complete(batch)

    def _complete(self, batch: list[_QueuedRequest]) -> None:
        first = batch[0]
        try:
            prompts, streams = [value.prompt for value in batch], [[self._stream(value)] for value in batch]
            outputs = self._engine.complete(prompts, first.sampling, streams=streams)
        except Exception as error:
            for value in batch:
                value.answer.set_exception(RequestRefusal(f"the engine gave up: {error}"))
            return
        for value, (output,) in zip(batch, outputs, strict=True):
            call = ServedCall(
                f"call-{len(self.calls)}", value.messages, value.prompt, value.sampling, value.draw, output
            )
            self.calls[call.id] = call
            value.answer.set_result(call)
        self._on_answers(len(self.calls))


def _messages(arguments: Any) -> tuple[Message, ...]:
    if not isinstance(arguments, list) or not arguments:
        raise RequestRefusal("messages are missing")
    messages: list[Message] = []
    for value in arguments:
        role, content = (value.get("role"), value.get("content")) if isinstance(value, dict) else (None, None)
        if role not in ROLES or not isinstance(content, str):
            raise RequestRefusal(f"a message must be text with one of the roles {', '.join(ROLES)}")
        messages.append({"role": role, "content": content})
    return tuple(messages)


class _Listener(socketserver.ThreadingUnixStreamServer):
    """One thread a request; they wait for the decoder."""

    request_queue_size = 128


def _handler(server: CompletionServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = ANSWER_S

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            if not length.isdecimal() or int(length) > MOST_BYTES:
                self.close_connection = True
                self._send(413, _error("the request has no length, or is too long"))
                return
            body = self.rfile.read(int(length))
            data = self.headers.get("Authorization", "").encode()
            if not hmac.compare_digest(data, f"Bearer {server.key}".encode()):
                self._send(401, _error("the key is not that of this job"))
            elif self.path != PATH:
                self._send(404, _error(f"only {PATH} is served"))
            else:
                self._answer(body)

        def _answer(self, body: bytes) -> None:
            try:
                answered = _as_json(server.answer(json.loads(body)))
            except (RequestRefusal, ValueError, RecursionError) as error:
                self._send(400, _error(str(error)))
            else:
                self._send(200, answered)

        def _send(self, status: int, answered: dict[str, Any]) -> None:
            data = json.dumps(answered).encode()
            with suppress(BrokenPipeError, ConnectionResetError):
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        def address_string(self) -> str:
            return "task"

        def log_message(self, format: str, *args: Any) -> None:
            """Requests are kept, not logged."""

    return Handler


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error"}}


def _as_json(call: ServedCall) -> dict[str, Any]:
    answer = {"role": "assistant", "content": call.output.text}
    used = {"prompt_tokens": len(call.prompt), "completion_tokens": len(call.output.ids)}
    return {
        "id": call.id,
        "object": "chat.completion",
        "model": "model",
        "choices": [{"index": 0, "message": answer, "finish_reason": "length" if call.output.truncated else "stop"}],
        "usage": used | {"total_tokens": sum(used.values())},
    }
