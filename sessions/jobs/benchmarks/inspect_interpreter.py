"""Run in the sandbox by the interpreter of inspect_ai's environment, which lacks Peergate: carries out one task.

What to do is in ``/inputs/settings``. The model is asked over the socket ``/inputs/socket``, the only way out of the
sandbox; the log is left in ``OUT``, packed so that Python's own ``zipfile`` reads it.
"""

from __future__ import annotations

import json
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import httpx
from inspect_ai import eval as evaluate  # pyright: ignore[reportMissingImports, reportUnknownVariableType]
from inspect_ai.model import (  # pyright: ignore[reportMissingImports]
    ChatCompletionChoice,  # pyright: ignore[reportUnknownVariableType]
    ChatMessageAssistant,  # pyright: ignore[reportUnknownVariableType]
    ModelAPI,  # pyright: ignore[reportUnknownVariableType]
    ModelOutput,  # pyright: ignore[reportUnknownVariableType]
    ModelUsage,  # pyright: ignore[reportUnknownVariableType]
    modelapi,  # pyright: ignore[reportUnknownVariableType]
)

ANSWER_S = 3600.0
NAMES = ("max_tokens", "temperature", "top_p", "seed", "stop_seqs", "num_choices", "frequency_penalty", "logit_bias")
"""Settings of a request that are passed on; the server refuses unknown settings."""
SERVED = {"stop_seqs": "stop", "num_choices": "n"}


class InspectRequestError(Exception):
    """The model cannot be asked so."""


def provider(inputs: Path, settings: dict[str, Any]) -> Any:
    """Return the class of the model's API, which asks Peergate's server."""
    client = httpx.AsyncClient(
        transport=httpx.AsyncHTTPTransport(uds=str(inputs / "socket")),
        base_url="http://peergate",
        headers={"Authorization": f"Bearer {settings['key']}"},
        timeout=ANSWER_S,
    )

    class ServedModel(ModelAPI):  # pyright: ignore[reportUntypedBaseClass]
        async def generate(self, input: Any, tools: Any, tool_choice: Any, config: Any) -> Any:
            if tools:
                raise InspectRequestError(
                    "the task offers tools to the model; the model that Peergate serves calls none"
                )
            requests: dict[str, Any] = {"messages": [message(value) for value in input]}
            for name in NAMES:
                if (value := getattr(config, name, None)) is not None:
                    requests[SERVED.get(name, name)] = value
            response = await client.post("/v1/chat/completions", json=requests)
            facts = response.json()
            if response.status_code != 200:
                raise InspectRequestError(facts["error"]["message"])
            (choice,), usage = facts["choices"], facts["usage"]
            return ModelOutput(
                model="model",
                choices=[
                    ChatCompletionChoice(
                        message=ChatMessageAssistant(content=choice["message"]["content"]),
                        stop_reason="max_tokens" if choice["finish_reason"] == "length" else "stop",
                    )
                ],
                usage=ModelUsage(
                    input_tokens=usage["prompt_tokens"],
                    output_tokens=usage["completion_tokens"],
                    total_tokens=usage["total_tokens"],
                ),
                response_id=facts["id"],
            )

        def max_connections(self) -> int:
            return settings["at_once"]

        def should_retry(self, ex: Exception) -> bool:
            return False

    return ServedModel


def message(value: Any) -> dict[str, str]:
    """Return a message as it is sent; raises Refused unless it is text."""
    content = value.content
    if not isinstance(content, str):
        if any(getattr(part, "type", "") != "text" for part in content):
            raise InspectRequestError("the task sends pictures or files; the model reads text only")
        content = "\n".join(part.text for part in content)
    return {"role": str(value.role), "content": content}


def main() -> int:
    """Run the task; return 0, or 1 after a line on stderr that says why it failed."""
    inputs, out = Path(os.environ["INPUTS"]), Path(os.environ["OUT"])
    settings: dict[str, Any] = json.loads((inputs / "settings").read_text(encoding="utf-8"))
    made = provider(inputs, settings)
    modelapi("peergate")(lambda: made)
    args = {
        name: value.replace("{items}", str(inputs / "items.jsonl")) if isinstance(value, str) else value
        for name, value in settings["args"].items()
    }
    named = settings["task"]
    task = named if "/" in named else f"{inputs / 'task.py'}@{named}"
    os.chdir("/tmp")
    try:
        (log,) = evaluate(
            task,
            model="peergate/model",
            task_args=args,
            log_dir="/tmp/logs",
            log_format="eval",
            log_samples=True,
            display="none",
            epochs=settings["epochs"],
            fail_on_error=True,
            retry_on_error=0,
            max_samples=settings["at_once"],
            max_tasks=1,
            acp_server=False,
            ctl_server=False,
            max_retries=0,
        )
    except Exception as error:
        print(f"inspect: task {named}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    if log.status != "success":
        # The last line is what happened, those before are where.
        text = str(log.error.message if log.error else "it did not end").strip()
        print(f"inspect: the task ended with status {log.status}: {text}", file=sys.stderr)
        return 1
    location = str(log.location)
    repack(Path(location.removeprefix("file://")), out / "inspect.eval")
    return 0


def repack(source: Path, target: Path) -> None:
    """Write the members of a log again, deflated: the library's own compression is not in older Pythons."""
    with zipfile.ZipFile(source) as read, zipfile.ZipFile(target, "x", zipfile.ZIP_DEFLATED) as written:
        for member in read.infolist():
            written.writestr(member.filename, read.read(member))


if __name__ == "__main__":
    raise SystemExit(main())
