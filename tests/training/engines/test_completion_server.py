"""The server of a checkpoint: who may ask, what is refused, and whether answers are the engine's and all are kept."""

from __future__ import annotations

import _socket
import http.client
import json
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testing.fixtures.tiny_training import tiny_checkpoint
from training.engines.completion_server import PATH, CompletionLimits, CompletionServer
from training.engines.engine import BatchedEngine, CompletionEngine
from training.engines.engine_factory import make_engine
from training.engines.token_sampling import TokenSampling
from training.rules.prompt_encoding import dialogue_ids


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("server", timeout=60)
        self._path = path

    def connect(self) -> None:
        # Tests may connect to hosts of a list only, which no path is on.
        result = _socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        result.connect(str(self._path))
        self.sock = socket.socket(fileno=result.detach())


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> CompletionEngine:
    folder = tmp_path_factory.mktemp("served")
    return make_engine("batched", tiny_checkpoint(folder / "model"), 4, scratch=folder, share=False)


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="served-") as name:
        yield Path(name) / "socket"


def serve(engine: CompletionEngine, place: Path, temperature: float | None = None) -> CompletionServer:
    return CompletionServer(
        engine,
        lambda messages: dialogue_ids(engine.tokenizer, messages, "chat").ids,
        CompletionLimits(12, temperature, 0, 4),
        place,
    )


def ask(place: Path, key: str, path: str = PATH, **request: Any) -> tuple[int, Any]:
    connection = _Connection(place)
    connection.request("POST", path, json.dumps(request), {"Authorization": f"Bearer {key}"})
    answer = connection.getresponse()
    pair = answer.status, json.loads(answer.read())
    connection.close()
    return pair


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def test_answers_are_those_of_the_engine_and_are_kept(engine: CompletionEngine, place: Path) -> None:
    texts = [f"word {'x' * n}" for n in range(1, 8)]
    with serve(engine, place) as server:
        results: dict[str, Any] = {}

        def ask_once(text: str) -> None:
            results[text] = ask(place, server.key, messages=user(text), temperature=0, max_tokens=9)

        threads = [threading.Thread(target=ask_once, args=(text,)) for text in texts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(server.calls) == len(texts) and not place.exists()
    for text in texts:
        status, report = results[text]
        call = server.calls[report["id"]]
        prompt = dialogue_ids(engine.tokenizer, user(text), "chat").ids
        ((alone,),) = engine.complete([prompt], TokenSampling(9))
        assert status == 200 and call.prompt == prompt and call.messages == tuple(user(text))
        assert call.output == alone and report["choices"][0]["message"]["content"] == alone.text
        assert report["usage"]["completion_tokens"] == len(alone.ids)


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ({"temperature": 0.7}, "temperature is 0.7, the stage grants greedy decoding"),
        ({"max_tokens": 13}, "max_tokens is 13, the stage grants max_new_tokens 12"),
        ({"max_tokens": True}, "max_tokens is True, the stage grants max_new_tokens 12"),
        ({"top_p": 0.9}, "top_p is 0.9, the stage samples from the whole distribution"),
        ({"n": 2}, "'n' is not supported here"),
        ({"tools": [{}]}, "'tools' is not supported here"),
        ({"stop": [""]}, "stop must be at most 8 texts"),
        ({"messages": []}, "messages are missing"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "a message must be text with one of the roles"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "a message must be text"),
        ({"messages": user("x" * 600)}, "the model reads 512"),
    ],
)
def test_what_is_not_granted_is_refused_and_not_answered(
    engine: CompletionEngine, place: Path, request_: dict[str, Any], why: str
) -> None:
    with serve(engine, place) as server:
        whole: dict[str, Any] = {"messages": user("hi")} | request_
        status, report = ask(place, server.key, PATH, **whole)
        assert status == 400 and why in report["error"]["message"]
        assert server.calls == {}


def test_only_who_has_the_key_is_answered(engine: CompletionEngine, place: Path) -> None:
    with serve(engine, place) as server:
        assert ask(place, "", messages=user("hi"))[0] == 401
        assert ask(place, f"{server.key}x", messages=user("hi"))[0] == 401
        assert ask(place, server.key, "/v1/models", messages=user("hi"))[0] == 404
        assert place.stat().st_mode & 0o077 == 0
        assert server.calls == {}
        assert ask(place, server.key, messages=user("hi"))[0] == 200


def test_what_is_no_request_is_refused(engine: CompletionEngine, place: Path) -> None:
    with serve(engine, place) as server:
        for body, status in ((b"[]", 400), (b"{", 400), (b"[" * 5000, 400)):
            connection = _Connection(place)
            connection.request("POST", PATH, body, {"Authorization": f"Bearer {server.key}"})
            assert connection.getresponse().status == status
            connection.close()


def test_samples_depend_on_seed_and_prompt_and_not_on_the_order(engine: CompletionEngine, place: Path) -> None:
    def sampled(texts: list[str]) -> dict[str, list[str]]:
        results: dict[str, list[str]] = {}
        with serve(engine, place, 1.0) as server:
            for text in texts:
                _, report = ask(place, server.key, messages=user(text), temperature=1.0, seed=len(texts))
                results.setdefault(text, []).append(report["choices"][0]["message"]["content"])
            draws = [call.draw for call in server.calls.values() if call.messages == tuple(user("a"))]
        assert draws == list(range(len(draws)))
        return results

    first, second = sampled(["a", "b", "a"]), sampled(["b", "a", "a", "c"])
    assert first == {text: second[text] for text in first} and first["a"][0] != first["a"][1]


def test_an_engine_that_gives_up_is_a_refusal(
    place: Path, engine: CompletionEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(BatchedEngine, "_complete", broken)
    with serve(engine, place) as server:
        status, report = ask(place, server.key, messages=user("hi"))
    assert status == 400 and "out of memory" in report["error"]["message"] and server.calls == {}
