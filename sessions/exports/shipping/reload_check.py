"""Loads a checkpoint in two fresh processes, and its exports in llama.cpp: do they answer, alike, and fast enough?

Weights that a file lacks are filled with random numbers by the library: two processes then answer differently.
"""

from __future__ import annotations

import json
import math
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from reviews.checks.job_endings import ending_of
from sessions.jobs.job_environment import job_environment
from specs.stages.packaging.parameters import BARS, GgufFormat, is_installed
from specs.system.extras import install_hint
from specs.system.text import one_line
from training.rules.packaging.bounded_json import WrongFile
from training.rules.packaging.flaw import Flaw, NotRun
from training.rules.packaging.gguf_header import read_header
from training.rules.packaging.ship_rules import LayerOutcome, apply
from training.rules.packaging.tokenizer_texts import TEXTS

PROMPTS = ("Name three colours.", "What is 12 + 30?", "Write one sentence about the sea.")
_NEW_TOKENS = 16
_MOST_SECONDS = 1800
_COPY = "take the last good checkpoint, and copy it again"
_AGAIN = "export the checkpoint again"


class ReloadProbe:
    """What fresh processes make of a folder. Each runs once, when a rule first asks."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self._folder, self._scratch = folder, scratch
        self._answers: dict[str, Any] = {}

    def answers(self, name: str) -> dict[str, Any]:
        """Return what one process answered; raises NotRun without torch, and ValueError with its last words."""
        if name not in self._answers:
            if any(find_spec(value) is None for value in ("torch", "transformers")):
                raise NotRun(f"torch and transformers are not installed: {install_hint('train')}")
            counts = {"prompts": PROMPTS, "texts": TEXTS, "max_new_tokens": _NEW_TOKENS}
            self._answers[name] = self._run("reload", self._folder, counts, self._scratch / f"{name}.json")
        return self._answers[name]

    def read(self, file: Path) -> tuple[dict[str, Any], list[Any]]:
        """Return what llama.cpp makes of an export: its answer and the logits at each place; errors alike."""
        if not is_installed():
            raise NotRun(f"llama.cpp is not installed: {install_hint('gguf')}")
        import numpy

        first = self.answers("first")
        pairs = zip(first["prompts"], first["answers"], strict=True)
        requests = {"texts": TEXTS, "questions": [{"prompt": prompt, "answer": answer} for prompt, answer in pairs]}
        place = self._scratch / file.name
        place.mkdir()
        statements = self._run("llama_process", file, requests, place, place / "answers.json")
        return statements, [numpy.load(place / f"{number}.npy") for number in range(len(first["answers"]))]

    def _run(self, module: str, file: Path, request: Any, to: Path, answer: Path | None = None) -> dict[str, Any]:
        questions = self._scratch / "questions.json"
        questions.write_text(json.dumps(request), encoding="utf-8")
        command = [sys.executable, "-P", "-m", f"training.jobs.packaging.{module}", str(file.resolve())]
        try:
            done = subprocess.run(
                [*command, str(questions), str(to)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=job_environment(),
                timeout=_MOST_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ValueError(f"took more than {_MOST_SECONDS} s") from error
        if done.returncode != 0:
            last = done.stdout.decode("utf-8", "replace").strip().splitlines()[-1:]
            ending = ending_of("killed" if done.returncode == -signal.SIGKILL else "", " ".join(last))
            if ending.name in ("package", "memory", "disk", "killed"):
                # Nothing is known of the file: its reader could not be run.
                raise NotRun(f"{ending.description}: {ending.remedy}")
            raise ValueError(f"ended with code {done.returncode}: {one_line(' '.join(last), 300)}")
        return json.loads((answer or to).read_bytes())


def check_reload(folder: Path, floor: float) -> tuple[LayerOutcome, ...]:
    """Return what loading a folder shows, layer by layer; ``floor`` is the fewest tokens a second."""
    with tempfile.TemporaryDirectory(prefix="peergate-ship-") as scratch:
        made = ReloadProbe(folder, Path(scratch))
        outcomes = [
            apply("reload", lambda: _reload(folder, made)),
            apply("throughput", lambda: _throughput(made, floor)),
        ]
        if outcomes[1].status == "PASS":
            floored = f"the floor is {floor:g}" if floor else "no --floor is given"
            outcomes[1] = outcomes[1]._replace(why=f"{_rate(made):.3g} tokens a second here, {floored}")
        for file in sorted(folder.rglob("*.gguf")):
            outcome = apply("gguf", partial(_compare_export, made, file))
            outcomes.append(
                outcome
                if outcome.status != "PASS"
                else outcome._replace(why=f"llama.cpp continues {file.name} as it does")
            )
        return tuple(outcomes)


def _reload(folder: Path, made: ReloadProbe) -> Iterator[Flaw]:
    try:
        first, second = made.answers("first"), made.answers("second")
    except ValueError as error:
        yield Flaw("reload", "refused", folder.name, f"transformers cannot load it: it {error}", _COPY)
        return
    for what, name in (("missing", "filled with random numbers"), ("unexpected", "ignored")):
        if first[what]:
            why = f"{len(first[what])} tensors are {what} and were {name}, such as {one_line(first[what][0], 80)}"
            yield Flaw("reload", what, folder.name, why, "weights and config.json are of two models: take one")
    if first["answers"] != second["answers"]:
        why = "two fresh processes answer differently: some of its weights are random"
        yield Flaw("reload", "differs", folder.name, why, _COPY)
    if not any(first["answers"]):
        yield Flaw("reload", "silent", folder.name, f"every answer to {len(PROMPTS)} prompts is empty", _COPY)


def _rate(made: ReloadProbe) -> float:
    return statistics.median(made.answers("first")["rates"])


def _throughput(made: ReloadProbe, floor: float) -> Iterator[Flaw]:
    try:
        rate = _rate(made)
    except ValueError as error:
        raise NotRun("it could not be loaded") from error
    if not math.isfinite(rate) or rate <= 0 or rate < floor:
        why = f"writes {rate:.3g} tokens a second here, the floor is {floor:g}"
        yield Flaw("throughput", "below_floor", "config.json", why, "a faster machine, or a lower --floor")


def _compare_export(made: ReloadProbe, file: Path) -> Iterator[Flaw]:
    import numpy

    try:
        ours = made.answers("first")
    except ValueError as error:
        raise NotRun("the checkpoint could not be loaded") from error
    try:
        statements, logits = made.read(file)
    except ValueError as error:
        yield Flaw("gguf", "refused", file.name, f"llama.cpp cannot read it: it {error}", _AGAIN)
        return
    wrong = [
        text
        for text, current_text, other in zip(TEXTS, ours["texts"], statements["texts"], strict=True)
        if current_text != other
    ]
    if wrong:
        why = f"{len(wrong)} of {len(TEXTS)} texts become other tokens in llama.cpp, such as {one_line(wrong[0], 60)!r}"
        yield Flaw("gguf", "tokens", file.name, why, "check tokenizer.ggml.pre, and export again")
    pairs = zip(ours["answers"], logits, strict=True)
    every = [
        value == other for answer, read in pairs for value, other in zip(answer, numpy.argmax(read, 1), strict=True)
    ]
    if (format := _format_of(file)) is None:
        raise NotRun(f"no threshold is known for answers of {file.name}, which has types below 8 bits")
    bar = BARS[format].same_tokens
    if every and sum(every) < bar * len(every):
        why = f"llama.cpp continues {sum(every)} of {len(every)} tokens as transformers does, the bar is {bar:.1%}"
        yield Flaw("gguf", "answers", file.name, why, _AGAIN)


def _format_of(file: Path) -> GgufFormat | None:
    """Return the coarsest format of a file's tensors, whose bars apply; None for one without bars."""
    try:
        texts = {tensor.dtype for tensor in read_header(file).tensors.values()}
    except WrongFile:
        return "f32"
    if not texts <= {"F32", "F16", "BF16", "Q8_0"}:
        return None
    return "f32" if texts == {"F32"} else "q8_0" if "Q8_0" in texts else "f16"
