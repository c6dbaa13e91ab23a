"""A requested review as Markdown: for the terminal, with model text made plain, and for a file, where it is escaped.

Every text that somebody else wrote becomes one line, so that none of it can begin a heading, a row or a list of ours.
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from sessions.requests.consult_context import Requested
from specs import markdown
from specs.errors import UserError
from specs.text import one_line

_TEMPLATES = Path(__file__).parent / "templates"
_TITLES = {"question": "Answer", "review": "Review", "adversarial": "Claims against evidence"}


def page(done: Requested, *, escaped: bool) -> str:
    """Write what came of a request as Markdown.

    Args:
        done: the request and its answer.
        escaped: escape what Markdown would take for markup; a terminal shows the text as it is.
    """
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["text"] = markdown.line if escaped else _unescaped
    answer = done.answer
    told = answer if answer is None or answer.mode != "question" else _WithoutLists(answer)
    text = environment.get_template("requested.md.j2").render(
        mode=done.asked.mode,
        title=f"{_TITLES[done.asked.mode]}: {done.asked.topic}",
        answer=told,
        record=_record(done),
        read=done.reading.files,
        left_out=done.reading.left_out,
        more_left_out=done.reading.more_left_out,
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


class _WithoutLists:
    """An answer to a question, which has none of the lists of the others."""

    not_judged = ()
    unresolved = ()
    dropped_places = 0

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def __getattr__(self, name: str) -> object:
        return getattr(self._answer, name)


def refuse_to_overwrite(path: Path, force: bool) -> None:
    """Refuse a file that cannot be written, before anything is paid for.

    Raises:
        UserError: its folder is not there or not writable, it is a folder, or it exists already.
    """
    if not path.parent.is_dir():
        raise UserError(f"--out: there is no folder '{path.parent}'", hint="make it first")
    if path.is_dir():
        raise UserError(f"--out: '{path}' is a folder", hint="name a file in it")
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"--out: '{path.parent}' cannot be written to")
    if path.exists() and not force:
        raise UserError(f"--out: '{path}' exists already", hint="--force replaces it; or name another file")


def write_page(path: Path, text: str, force: bool) -> None:
    """Write a file whole or not at all; without ``force`` a file that came meanwhile stays as it is.

    Raises:
        UserError: it exists by now, or cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with partial.open("x", encoding="utf-8") as handle:
            handle.write(text)
            handle.flush()
            os.fsync(handle.fileno())
        if force:
            partial.replace(path)
        else:
            # Unlike a rename, a link is refused where there is a file already.
            path.hardlink_to(partial)
    except FileExistsError as error:
        raise UserError(f"--out: '{path}' exists by now", hint="the answer is in the trail") from error
    except OSError as error:
        told = f"--out: '{path}' cannot be written: {error.strerror or error}"
        raise UserError(told, hint="the answer is in the trail") from error
    finally:
        partial.unlink(missing_ok=True)


def _record(done: Requested) -> list[tuple[str, str]]:
    asked, answered = done.asked, done.answered
    rows = [("answered by", _answered_by(done)), ("reviewer", asked.reviewer)]
    if asked.policy is not None:
        rows.append(("policy", f"{asked.policy.rule}: {asked.policy.why}"))
    if answered.by == "model":
        usage = answered.usage or {}
        measured = "" if answered.usd_is_measured else " (the whole cap: what was used is not known)"
        rows += [
            ("model, as it answered", answered.model or "not known"),
            ("effort", f"{asked.tier}, reasoning {answered.reasoning or 'not asked for'}"),
            ("tokens", ", ".join(f"{name} {count}" for name, count in usage.items()) or "not known"),
            ("cost", f"{answered.usd:.6f} USD{measured}"),
            ("seconds", f"{answered.seconds:.1f}"),
            ("request", answered.request or "none"),
            ("response", answered.response or "none"),
        ]
    return [*rows, ("recorded", f"{done.key} in {done.folder}")]


def _answered_by(done: Requested) -> str:
    return {
        "policy": "the ask-policy, without a call",
        "checklist": "rules, without a model",
        "model": f"the model {done.asked.reviewer}",
        "recorded": f"the recorded answer of answered/{done.answered.same_as}, without a new call",
        "nobody": "nobody",
    }[done.answered.by]


def _unescaped(text: object, limit: int = markdown.LINE_CHARACTERS) -> str:
    return one_line(text, limit)
