"""Reads a file of teachers, and refuses those from which a student would learn in a circle."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from agents.turn_model import TurnModel, model_at
from specs.stages.base.artifacts import Taught
from specs.stages.explain import validate
from specs.stages.traces.parameters import family_of
from specs.system.errors import UserError
from specs.system.regular_files import read_regular
from specs.system.vendors.api_keys import KEYS, NO_KEY, key_in
from specs.system.vendors.http_exchange import api_with
from specs.system.vendors.parties import BuilderSpec
from specs.system.vendors.prices import ModelPrice, describe_unlisted_model, is_listed, missing_package
from specs.system.yaml.problems import LintProblem
from specs.system.yaml.yaml_positions import read_document
from specs.traces.teachers import Teacher, TeacherFile
from specs.traces.turn import TeacherPair
from training.rules.traces.pairs import LEAST_FAMILIES, TRACE
from training.rules.traces.shown_states import unknown_authors


def read_teachers(path: Path) -> TeacherFile:
    """Read a file of teachers; raises SpecError with all its problems, or UserError if it cannot be read."""
    try:
        raw = read_regular(path)
    except OSError as error:
        raise UserError(f"the file of teachers cannot be read: {error.strerror}", where=str(path)) from error
    document = read_document(path, raw)
    result = validate(document.data, TeacherFile)
    if not isinstance(result, list):
        problems = list(_problems(result))
        if not problems:
            return result
        result = problems
    raise document.error(path, result)


def _problems(file: TeacherFile) -> Iterator[LintProblem]:
    ids: set[str] = set()
    for place, teacher in enumerate(file.teachers):
        loc = ("teachers", place)
        if teacher.id in ids:
            yield LintProblem(
                (*loc, "id"), f"'{teacher.id}' is the id of another teacher", "name each of them differently"
            )
        ids.add(teacher.id)
        text = family_of(teacher.model)
        if text is not None and text != teacher.family:
            message = f"is '{teacher.family}', and '{teacher.model}' is a model of '{text}'"
            yield LintProblem((*loc, "family"), message, f"write {text}: a fine-tuned model keeps its family")
        if teacher.key_variable and not teacher.base_url:
            hint = f"{KEYS[teacher.vendor]} holds the key of the vendor"
            yield LintProblem((*loc, "key_variable"), "names the key of an endpoint, and there is none", hint)
        if teacher.usd_per_million_tokens is None and (missing := _no_price(teacher)) is not None:
            yield LintProblem((*loc, "model"), *missing)


def _no_price(teacher: Teacher) -> tuple[str, str] | None:
    """Return what is wrong where no price is known of a model, and what to do; None where one is."""
    if teacher.base_url:
        return "no price is known of a model at an endpoint", "state usd_per_million_tokens: {input: ..., output: ...}"
    try:
        return (
            None if is_listed(teacher.vendor, teacher.model) else describe_unlisted_model(teacher.vendor, teacher.model)
        )
    except ImportError as error:
        raise missing_package("genai-prices", "builder") from error


def circles(file: TeacherFile, authors: Iterable[str]) -> tuple[str, ...]:
    """Return why a student would learn in a circle from these teachers; empty if it would not."""
    authors = tuple(authors)
    texts = unknown_authors(authors)
    for teacher in file.teachers:
        if teacher.family in authors:
            texts.append(f"teacher '{teacher.id}' is of the family '{teacher.family}', which wrote the traces")
        if teacher.family == file.student:
            texts.append(f"teacher '{teacher.id}' is of the student's own family '{teacher.family}'")
    families = {teacher.family for teacher in file.teachers}
    if len(families) < LEAST_FAMILIES:
        texts.append(f"all teachers are of one family, '{next(iter(families))}': that they agree says nothing")
    return tuple(texts)


def models_of(file: TeacherFile, environ: Mapping[str, str] = os.environ) -> dict[str, TurnModel]:
    """Return the model of each teacher; raises UserError if a key is not set or an SDK is missing."""
    return {teacher.id: _model(teacher, environ) for teacher in file.teachers}


def _model(teacher: Teacher, environ: Mapping[str, str]) -> TurnModel:
    spec = BuilderSpec(
        vendor=teacher.vendor,
        model=teacher.model,
        base_url=teacher.base_url,
        usd_per_million_tokens=teacher.usd_per_million_tokens,
        max_output_tokens=teacher.max_output_tokens,
        timeout_s=teacher.timeout_s,
    )
    name = teacher.key_variable or ("" if teacher.base_url else KEYS[teacher.vendor])
    key = key_in(name, f"teacher '{teacher.id}'", environ) if name else NO_KEY
    return model_at(
        api_with(key, spec, ModelPrice(teacher.vendor, teacher.model, teacher.usd_per_million_tokens)), spec
    )


def with_teachers(
    pairs: Iterable[TeacherPair], file: TeacherFile, authors: Iterable[str], circular: tuple[str, ...], override: str
) -> list[TeacherPair]:
    """Return pairs that say whose outputs their chosen sides are: it goes wherever they go."""
    known, wrote, matching_pairs = (
        {teacher.id: teacher for teacher in file.teachers},
        tuple(authors),
        list[TeacherPair](),
    )
    for pair in pairs:
        teachers = [known[id] for id in pair.chosen_by if id in known]
        families = {teacher.family for teacher in teachers} | (set(wrote) if TRACE in pair.chosen_by else set())
        taught = Taught(
            families=tuple(sorted(families)),
            licenses=tuple(sorted({f"{teacher.family}: {teacher.license}" for teacher in teachers})),
            student=file.student,
            circular=circular,
            override=override,
        )
        matching_pairs.append(pair.model_copy(update={"taught": taught}))
    return matching_pairs
