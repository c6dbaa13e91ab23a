"""Run in the sandbox by Peergate's interpreter, where Peergate itself is not mounted: carries out a task of lm-eval.

What to do is in ``/inputs/settings``. The model is asked over the socket ``/inputs/socket``, the only way out of the
sandbox; prompts, answers and scores are written to ``OUT`` as JSON.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import socket
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

ANSWER_S = 3600.0
FILES, ENTRY, SAMPLES = "/tmp/files", "/tmp/task", "samples.json"
"""The registered files lie outside of the folder in which the library looks for tasks: there is one, which includes
them."""
SENT = {"until": "stop", "max_gen_toks": "max_tokens", "temperature": "temperature"}
"""Settings of a request that are sent; the server refuses what was not granted."""


class LmEvalRequestError(Exception):
    """The model cannot be asked so."""


class _Socket(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(Path(os.environ["INPUTS"]) / "socket"))


def ask(key: str, context: Any, arguments: dict[str, Any]) -> tuple[str, str]:
    """Return the answer's id and text; raises Refused."""
    if not isinstance(context, str):
        raise LmEvalRequestError("the task sends messages or pictures; only a single text is supported")
    requests: dict[str, Any] = {"messages": [{"role": "user", "content": context}]}
    for name, value in arguments.items():
        if name == "do_sample" or value is None:
            continue
        requests[SENT.get(name, name)] = value
    if not arguments.get("do_sample") and not requests.get("temperature"):
        # The library's way to say "greedy"; the stage says how it is decoded.
        requests.pop("temperature", None)
    connection = _Socket("peergate", timeout=ANSWER_S)
    try:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(requests).encode(), headers)
        http_response = connection.getresponse()
        facts = json.loads(http_response.read())
    finally:
        connection.close()
    if http_response.status != 200:
        raise LmEvalRequestError(facts["error"]["message"])
    return facts["id"], facts["choices"][0]["message"]["content"]


def make_served_model(settings: dict[str, Any], ids: dict[int, list[str]]) -> Any:
    """Return the library's model, which asks Peergate's server; ``ids`` gets the answers of each document."""
    base: Any = import_module("lm_eval.api.model").LM

    def ask_server(request: Any) -> tuple[str, str]:
        return ask(settings["key"], *request.args)

    class ServedModel(base):
        def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
            with ThreadPoolExecutor(settings["at_once"]) as pool:
                answers = list(pool.map(ask_server, requests))
            for request, (id, _) in zip(requests, answers, strict=True):
                ids[request.doc_id].append(id)
            return [text for _, text in answers]

        def loglikelihood(self, *_: Any, **__: Any) -> Any:
            raise LmEvalRequestError("the task asks for log-probabilities; only generation is supported")

        loglikelihood_rolling = loglikelihood

    return ServedModel()


def plain(value: Any) -> str | bool | float | None:
    """Return a score as JSON holds it; None for several values or no number."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, bool | str):
        return value
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def main() -> int:
    """Run the task; return 0, or 1 after a line on stderr that says why it failed."""
    inputs, out = Path(os.environ["INPUTS"]), Path(os.environ["OUT"])
    settings: dict[str, Any] = json.loads((inputs / "settings").read_text(encoding="utf-8"))
    os.environ.update({"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": "/tmp/hf"})
    for folder, files in ((FILES, settings["files"]), (ENTRY, {"task.yaml": settings["entry"]})):
        Path(folder).mkdir()
        for name, text in files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
    os.chdir(FILES)
    ids: dict[int, list[str]] = defaultdict(list)
    try:
        library: Any = import_module("lm_eval")
        tasks: Any = import_module("lm_eval.tasks")
        result: Any = library.simple_evaluate(
            model=make_served_model(settings, ids),
            tasks=[settings["task"]],
            task_manager=tasks.TaskManager(include_path=ENTRY, include_defaults=False),
            bootstrap_iters=0,
            log_samples=True,
            # Code of the task runs here, in the sandbox.
            confirm_run_unsafe_code=True,
            random_seed=settings["seed"],
            numpy_random_seed=settings["seed"],
            torch_random_seed=settings["seed"],
            fewshot_random_seed=settings["seed"],
        )
        samples = [
            {
                "place": value["doc_id"],
                "id": value["doc"].get("id") if isinstance(value["doc"], dict) else None,
                "target": value["target"] if isinstance(value["target"], list) else [value["target"]],
                "filter": value["filter"],
                "prompt": value["arguments"][0][0],
                "answers": [text for part in value["resps"] for text in part],
                "ids": ids[value["doc_id"]],
                "scores": {str(name): plain(value[name]) for name in value["metrics"]},
            }
            for value in result["samples"][settings["task"]]
        ]
    except Exception as error:
        print(f"lm_eval: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    (out / SAMPLES).write_text(json.dumps(samples, default=str), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
