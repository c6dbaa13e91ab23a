"""Run flaws and healthy sessions in processes of their own, and say how each fared."""

from __future__ import annotations

import gc
import multiprocessing
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, TypeVar

from bench.flaws.healthy import VARIATIONS, Healthy
from bench.flaws.lying import PlantFailure
from bench.flaws.operator import Operator
from bench.flaws.operators import OPERATORS
from bench.flaws.session import SessionEnd, run_session
from bench.flaws.small_specs import Variation, tiny_model
from training.running_code import code_state

Value = TypeVar("Value")
Result = dict[str, Any]


def outcome(operator: Operator, ended: SessionEnd, twin: SessionEnd) -> str:
    """Return how a flaw fared.

    ``stopped`` or ``named`` (accepted all the same) by a check that was expected to fail, ``warned`` (accepted, such a
    check only warned), ``refused`` (by other words of the spec's rules, before anything ran), ``ended without
    acceptance`` for another reason, or ``missed``. A finding that the healthy twin raises too names nothing.
    """
    if ended.outcome == "broke":
        return "broken"
    # What had no evidence closed the gate as what failed did.
    if _any(operator, [*_new(ended.failed, twin.failed), *_new(ended.blocked, twin.blocked)]):
        return "named" if ended.is_accepted else "stopped"
    if ended.outcome == "refused":
        return "refused"
    if not ended.is_accepted:
        return "ended without acceptance"
    return "warned" if _any(operator, [text for text in ended.warned if text not in twin.warned]) else "missed"


def _any(operator: Operator, texts: Sequence[str]) -> bool:
    return any(wanted in text for wanted in operator.expected for text in texts)


def twin(folder: Path, session: str) -> tuple[str, SessionEnd]:
    """Return how the healthy twin of a session ended, after its name."""
    shutil.rmtree(folder / f"twin-{session}", ignore_errors=True)
    model = tiny_model(folder, revises="better" if session == "revised" else "")
    return session, run_session(folder / f"twin-{session}", model, None, Variation(session=session))


def run_planted_session(folder: Path, name: str, twin: SessionEnd) -> Result:
    """Run an operator and return how it fared; ``broken`` if it could not be planted."""
    operator = next(operator for operator in OPERATORS if operator.name == name)
    began = time.perf_counter()
    shutil.rmtree(folder / name, ignore_errors=True)
    try:
        model = tiny_model(folder, revises=operator.revises or ("better" if operator.session == "revised" else ""))
        ended = run_session(folder / name, model, operator)
    except (Exception, PlantFailure) as error:
        ended = SessionEnd("broke", (f"{type(error).__name__}: {error}",))
    facts = {"operator": name, "family": operator.family, "result": outcome(operator, ended, twin)}
    texts = {"failed": _new(ended.failed, twin.failed), "warned": _new(ended.warned, twin.warned)}
    texts["blocked"] = list(ended.blocked)
    return facts | {"outcome": ended.outcome} | texts | {"seconds": round(time.perf_counter() - began, 1)}


def _new(texts: Sequence[str], twins: Sequence[str]) -> list[str]:
    return [text for text in texts if text not in twins]


def teach_models(folder: Path, numbers: Sequence[int]) -> None:
    """Train the models that the sound sessions of these numbers start from."""
    chosen = [VARIATIONS[number % len(VARIATIONS)] for number in numbers]
    for kinds, language in dict.fromkeys((healthy.kinds, healthy.language) for healthy in chosen):
        tiny_model(folder, kinds, language=language)


def sound(folder: Path, number: int) -> Result:
    """Run a healthy session and return whether it was accepted or ended in a null result."""
    healthy: Healthy = VARIATIONS[number % len(VARIATIONS)]
    began = time.perf_counter()
    others = healthy.task, healthy.launcher
    shutil.rmtree(folder / f"healthy{number}", ignore_errors=True)
    variation = Variation(number, healthy.session, healthy.kinds, healthy.changes, *others, healthy.language)
    model = tiny_model(folder, healthy.kinds, language=healthy.language)
    ended = run_session(folder / f"healthy{number}", model, None, variation)
    fine = ended.outcome in ("approve", "null")
    facts = {"healthy": number, "variation": healthy.name, "result": "passed" if fine else "rejected"}
    result: Result = {"outcome": ended.outcome, "failed": list(ended.failed), "warned": list(ended.warned)}
    result |= {"right": ended.right, "commit": code_state().commit}
    return facts | result | {"seconds": round(time.perf_counter() - began, 1)}


def run_in_processes(workers: int, work: Callable[..., Value], arguments: Sequence[tuple[Any, ...]]) -> Iterator[Value]:
    """Yield what the work returns for each, in processes of their own, as they end."""
    if not arguments:
        return
    # Started anew: what torch holds does not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        for done in as_completed([pool.submit(_quiet, work, *value) for value in arguments]):
            yield done.result()


def _quiet(work: Callable[..., Value], *arguments: Any) -> Value:
    """Do work without what trainers print."""
    # Jobs collect garbage after each model: what is imported by now would be searched each time.
    gc.collect()
    gc.freeze()
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        return work(*arguments)
