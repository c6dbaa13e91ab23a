"""The job that writes a model for llama.cpp and has llama.cpp read it: the same token ids, the same next tokens."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specs.stages.packaging.parameters import ExportParameters
from specs.stages.packaging.rows import ExportRow, ExportTextRow
from specs.system.text import one_line
from training.engines.checkpoint import device_of, load
from training.engines.gguf_file import write_gguf
from training.engines.gguf_weights import NoGguf
from training.jobs.job import Job, StageResult
from training.jobs.packaging import llama_process
from training.jobs.packaging.probe_answers import build_probe_prompts, encode_probe_prompts, greedy
from training.jobs.witness.prompted_answers import PromptedAnswer
from training.rules.packaging.tokenizer_texts import TEXTS
from training.rules.prompt_encoding import EncodedPrompt, form_of
from training.rules.tasks import load_items

FILE = "model.gguf"
_LOG_LINES = 20


def export(job: Job[ExportParameters]) -> StageResult:
    """Write ``export``, to ``rows`` the answers to the probes, and there and to ``texts`` what llama.cpp reads.

    Raises EncodingFault as the stages before, and SystemExit for a model that cannot be written for llama.cpp.
    """
    import torch

    parameters = job.parameters
    target = job.out / "export"
    target.mkdir(exist_ok=True)
    try:
        gguf = write_gguf(job.inputs["model"], target / FILE, parameters.format, vocabulary=True)
    except NoGguf as error:
        raise SystemExit(f"the model cannot be written for llama.cpp: {error}") from error
    job.progress(1, 3, "steps")
    form = form_of(job.order.model_kind)
    probes = load_items(job.inputs["items"])[: parameters.probe_items]
    # llama.cpp computes in float32 on the CPU: another precision here would be measured as a fault of the export.
    model, tokenizer = load(job.inputs["model"], "cpu", torch.float32)
    encoded_prompts = encode_probe_prompts(tokenizer, [item.prompt for item in probes], form)
    expected = greedy(model, tokenizer, encoded_prompts, parameters.max_new_tokens)
    job.progress(2, 3, "steps")
    rows = [ExportRow(item=item.id, expected=tuple(ids)) for item, ids in zip(probes, expected, strict=True)]
    texts: list[ExportTextRow] = []
    facts: dict[str, Any] = {"tensors": gguf, "bytes": (target / FILE).stat().st_size}
    if parameters.verify == "llama_cpp":
        read = _Reading(job, target / FILE, encoded_prompts, expected)
        every = [*TEXTS, *(encoded_prompt.text for encoded_prompt in encoded_prompts)]
        ours = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in every]
        theirs = read.texts(every)
        texts = [
            ExportTextRow(text=text, expected=tuple(value), read=tuple(other))
            for text, value, other in dict(zip(every, zip(every, ours, theirs, strict=True), strict=True)).values()
        ]
        rows = [
            ExportRow(item=item.id, expected=tuple(ids), **_compare_logits(model, prompt.ids, ids, logits))
            for item, prompt, ids, logits in zip(probes, encoded_prompts, expected, read.logits(), strict=True)
        ]
        facts["read_by"] = read.reader
    job.write_rows("rows", rows)
    job.write_rows("texts", texts)
    job.progress(3, 3, "steps")
    effective = parameters.model_dump(mode="json") | {"form": form}
    return StageResult(*device_of(model), sum(len(row.expected) for row in rows), effective, facts)


class _Reading:
    """What a process with llama.cpp makes of an export."""

    def __init__(
        self, job: Job[ExportParameters], file: Path, encoded_prompts: list[EncodedPrompt], answers: list[list[int]]
    ) -> None:
        self._folder = job.folder / "read"
        self._folder.mkdir(exist_ok=True)
        self._file, self._asked, self._answers = file, encoded_prompts, answers
        self.reader = ""

    def texts(self, every: list[str]) -> list[list[int]]:
        """Have llama.cpp read all there is to read, and return the token ids of the texts."""
        questions = self._folder / "questions.json"
        pairs = zip(self._asked, self._answers, strict=True)
        counts = [{"prompt": list(encoded_prompt.ids), "answer": ids} for encoded_prompt, ids in pairs]
        questions.write_text(json.dumps({"texts": every, "questions": counts}), encoding="utf-8")
        command = [sys.executable, "-P", "-m", llama_process.__name__]
        done = subprocess.run(
            [*command, str(self._file), str(questions), str(self._folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode != 0:
            # llama.cpp says why on its own, and its binding only that it failed.
            lines = done.stdout.decode("utf-8", "replace").strip().splitlines()[-_LOG_LINES:]
            print(*lines, sep="\n", file=sys.stderr)
            how = f"ended with exit code {done.returncode}: {one_line(' '.join(lines[-1:]), 300)}"
            raise SystemExit(f"the process that reads the export with llama.cpp {how}")
        statement = json.loads((self._folder / "answers.json").read_bytes())
        self.reader = statement["reader"]
        return statement["texts"]

    def logits(self) -> list[Any]:
        """Return the logits at each place of each answer. [answer, vocabulary] each."""
        import numpy

        return [numpy.load(self._folder / f"{number}.npy") for number in range(len(self._asked))]


def _compare_logits(model: Any, prompt: Sequence[int], answer: list[int], read: Any) -> dict[str, Any]:
    """Return the fields of a row that compare llama.cpp's logits with the model's."""
    import torch

    with torch.no_grad():
        every = model(input_ids=torch.tensor([[*prompt, *answer]])).logits[0]
    ours = every[len(prompt) - 1 : -1].double()
    theirs = torch.from_numpy(read).double()
    if not len(ours):
        return {"read": (), "largest": 0.0, "divergence": 0.0}
    first, second = ours.log_softmax(-1), theirs.log_softmax(-1)
    divergence = (first.exp() * (first - second)).sum(-1).clamp(min=0).mean()
    return {
        "read": tuple(theirs.argmax(-1).tolist()),
        "largest": float((ours - theirs).abs().max()),
        "divergence": float(divergence),
    }


def build_witness_prompts(job: Job[ExportParameters], tokenizer: Any, places: Sequence[int]) -> list[PromptedAnswer]:
    """Return what the checkpoint was asked for these rows; raises as :func:`build_probe_prompts`."""
    return build_probe_prompts(job, tokenizer, places, ExportRow, {"expected": "model"})
