"""A requested review as Markdown, in which no untrusted text begins a heading, a row or a list."""

from __future__ import annotations

import os
import re
import secrets
from functools import partial
from pathlib import Path

from sessions.pages.report.consult_context import RequestOutcome
from sessions.pages.template import render
from specs.system import markdown
from specs.system.errors import UserError
from specs.system.text import one_line
from specs.trail.requested_review import (
    AdversarialAnswer,
    Answer,
    DraftAnswer,
    QuestionAnswer,
    ReviewAnswer,
)

_TITLES = {"question": "Answer", "review": "Review", "adversarial": "Claims against evidence", "draft": "Drafted spec"}


def page(done: RequestOutcome, *, escaped: bool) -> str:
    """Return a request and its answer as Markdown; ``escaped`` where text may look like markup."""
    text = render(
        "requested.text.j2",
        escaped=escaped,
        mode=done.request_entry.mode,
        title=f"{' '.join(mark_of(done.answer))}. {_TITLES[done.request_entry.mode]}: {done.request_entry.topic}",
        answer=done.answer,
        record=_record(done),
        read=done.reading.files,
        left_out=done.reading.left_out,
        more_left_out=done.reading.more_left_out,
    )
    whole = re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
    return f"{whole}\n{registered_facts(done, escaped=escaped)}" if done.facts else whole


def mark_of(answer: Answer | None) -> tuple[str, str]:
    """Return how an answer is seen at one glance: a mark and the word for it."""
    if answer is None:
        return "❌", "No answer"
    match answer:
        case QuestionAnswer(approval=True):
            return "✅", "Approved"
        case QuestionAnswer(approval=False):
            return "❌", "Not approved"
        case ReviewAnswer(issues=issues):
            severities = {issue.severity for issue in issues}
            if "CRITICAL" in severities:
                return "❌", "Critical issues"
            return ("⚠️", "Issues of high severity") if "HIGH" in severities else ("✅", "No critical or high issue")
        case AdversarialAnswer(scorecard=rows):
            statuses = {row.status for row in rows}
            if "contradicted" in statuses:
                return "❌", "Claims contradicted"
            if not rows:
                return "⚠️", "No claim was judged"
            return ("⚠️", "Claims unsupported") if "unsupported" in statuses else ("✅", "All claims supported")
        case DraftAnswer():
            return "⚠️", "A draft: read it before you start it"
        case QuestionAnswer():
            return "⚠️", "No approval was asked for"


def registered_facts(done: RequestOutcome, *, escaped: bool) -> str:
    """Return what is registered about the matter of a question, as Markdown."""
    text = markdown.line if escaped else partial(one_line, limit=markdown.LINE_CHARACTERS)
    lines = [f"- {text(spec_value.pointer)}: {text(spec_value.value)}" for spec_value in done.facts]
    head = "What the spec registers about this, found by the words of the question; no one judged it:"
    return "\n".join(("## Registered facts", "", head, "", *lines, ""))


def refuse_to_overwrite(path: Path, force: bool) -> None:
    """Raise UserError, before anything is paid for, if the file cannot be written or exists already."""
    if not path.parent.is_dir():
        raise UserError(f"--out: folder '{path.parent}' does not exist", hint="create it first")
    if path.is_dir():
        raise UserError(f"--out: '{path}' is a folder", hint="name a file in it")
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"--out: '{path.parent}' cannot be written to")
    if path.exists() and not force:
        raise UserError(f"--out: '{path}' already exists", hint="--force replaces it; or name another file")


def write_page(path: Path, text: str, force: bool) -> None:
    """Write a file atomically, over an existing one only with ``force``; raise UserError if that fails."""
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
        raise UserError(f"--out: '{path}' was created in the meantime", hint="the answer is in the trail") from error
    except OSError as error:
        message = f"--out: '{path}' cannot be written: {error.strerror or error}"
        raise UserError(message, hint="the answer is in the trail") from error
    finally:
        partial.unlink(missing_ok=True)


def _record(done: RequestOutcome) -> list[tuple[str, str]]:
    question_entry, answered = done.request_entry, done.answer_entry
    by = {
        "policy": "the ask-policy, without a call",
        "checklist": "rules, without a model",
        "model": f"the model {question_entry.reviewer}",
        "recorded": f"the recorded answer of answer/{answered.same_as}, without a new call",
        "nobody": "no one",
    }
    rows = [("answered by", by[answered.by]), ("reviewer", question_entry.reviewer)]
    if question_entry.policy is not None:
        rows.append(("policy", f"{question_entry.policy.rule}: {question_entry.policy.why}"))
    if answered.by == "model":
        usage = answered.usage or {}
        measured = "" if answered.usd_is_measured else " (the whole cap: the actual cost is unknown)"
        rows += [
            ("model, as it answered", answered.model or "not known"),
            ("effort", f"{question_entry.tier}, reasoning {answered.reasoning or 'not asked for'}"),
            ("tokens", ", ".join(f"{name} {count}" for name, count in usage.items()) or "not known"),
            ("cost", f"{answered.usd:.6f} USD{measured}"),
            ("seconds", f"{answered.seconds:.1f}"),
            ("request", answered.request or "none"),
            ("response", answered.response or "none"),
        ]
    rows += [(f"answers/{number}", look) for number, look in enumerate(done.looked, 1)]
    return [*rows, ("recorded", f"{done.key} in {done.folder}")]
