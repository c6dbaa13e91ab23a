"""Rules on the items of data files: what the verifier of the spec's task needs of each."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from specs.session.session_spec import SessionSpec
from specs.stages.registry import kind_of, names_where
from specs.system.yaml.problems import LintProblem

ANSWERED = "exact_answer"
"""The task whose items name their right answer."""


class WithoutAnswer(NamedTuple):
    """A file whose items name no answer, where the task compares with one."""

    name: str
    """Its name as an input: ``heldout`` or ``data.NAME``."""
    line: int
    """The line of the first such item, counted from 1."""
    lacking: int
    items: int


def without_answers(spec: SessionSpec, files: Mapping[str, bytes]) -> Iterator[WithoutAnswer]:
    """Yield the files, by the name that inputs have for them, that a stage verifies by answers which they lack."""
    for name in sorted(verified_by(spec, ANSWERED) & files.keys()):
        lines = files[name].removesuffix(b"\n").split(b"\n")
        lacking = [number for number, line in enumerate(lines, 1) if not _has_answer(json.loads(line))]
        if lacking:
            yield WithoutAnswer(name, lacking[0], len(lacking), len(lines))


def unread_turns(spec: SessionSpec, files: Collection[str]) -> Iterator[LintProblem]:
    """Yield a problem for each stage that would read rows with turns before their prompt, and ask the prompt alone."""
    for index, stage in enumerate(spec.stages):
        kind = kind_of(stage)
        for role, reference in stage.inputs.items():
            if reference in files and not (kind.reads_turns or kind.runs_code):
                message = f"'{reference}' has rows with several turns, of which a {kind.name} stage would ask the last"
                hint = f"several turns are for {', '.join(names_where('reads_turns'))} stages"
                yield LintProblem(("stages", index, "inputs", role), message, hint)


def verified_by(spec: SessionSpec, verifier: str) -> set[str]:
    """Return the inputs whose items a task's verifier judges answers of."""
    texts: set[str] = set()
    for stage in spec.stages:
        kind = kind_of(stage)
        task = getattr(stage.parameters, "scorer", None) or spec.task
        by_arm = kind.arm is not None and not kind.arm.conversations and kind.only_measures and task == verifier
        if by_arm or (kind.sampled_by_task and spec.task == verifier):
            texts.update(reference for role, reference in stage.inputs.items() if role != "model")
    return texts


def _has_answer(item: dict[str, Any]) -> bool:
    return "answer" in (item.get("constraint") or {})
