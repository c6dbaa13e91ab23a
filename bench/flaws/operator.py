"""What a flaw operator is: one change of a healthy session, and what has to stop it, stated before it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from training.jobs.job import Job

Row = dict[str, Any]
Data = Callable[[list[Row], list[Row]], None]
"""Changes the held-out items and the prompts in place, before the session is registered."""
Lie = Callable[[list[Row], Path], None]
"""Changes the rows of a job in place, in the job's process, before it writes its manifest; gets the run folder."""
Work = Callable[[Job], None]
"""Changes what a job works on, or what it left, in the job's process, before it writes its manifest."""
Answer = Literal["retry", "approve", "stop"]
Change = tuple[str, str]
"""One text of a spec, and what replaces it."""


class Desk(Protocol):
    """What someone at the machine may do to a session that has stopped."""

    run: Path

    def amend(self, *changes: Change, override: bool = False) -> None:
        """Put another spec in force; a refused one changes nothing."""
        ...

    def answer(self, answer: Answer, reason: str) -> None:
        """Answer what the session asks, and let it go on."""
        ...

    def waits(self) -> bool:
        """Return whether the session waits for an answer."""
        ...

    def lift(self, check: str, stage: str) -> None:
        """Lift a check of a stage."""
        ...

    def retract(self, judgement: str) -> None:
        """Take a judgement back."""
        ...


Person = Callable[[Desk], None]

FAMILIES = (
    *(
        "leakage",
        "disguise",
        "labels",
        "design",
        "comparison",
        "parity",
        "arms",
        *("transfer", "several"),
        "answers",
        "samples",
        "scores",
        "curve",
    ),
    *("weights", "packaging", "records", "human", "prompts", "movement", "baselines"),
    *("contamination", "independence", "words", "marred", "verifiers", "material", "limits", "revisions"),
    *("retyped", "misgranted", "schedules", "bookkeeping", "splits"),
    *("misdrawn", "carried", "shortened", "rescored", "careless"),
)
SESSIONS = ("sft", "lora", "dpo", "scored", "judged", "given", "examples", "revised")
"""The small sessions: full training; adapters; pairs; full training with questions and texts, or with a critic; pairs
or examples that a person brings; pairs of revisions."""
REPORT, AUDIT = ("report.override", "report.exploratory", "report.retracted"), "audit"
"""What names a flaw next to checks: what the report says of its result, and damage that an audit finds."""
REFUSALS = (
    *("decides before", "is the chosen", "is empty", "constitution", "evaluated the same way", "cannot differ"),
    *("all the same", "answer each item", "both splits are answered", "reads the transfer split"),
    "only the examples differ",
)
"""Words of the spec's own rules that refuse a design."""


@dataclass(frozen=True)
class Operator:
    """One planted flaw. A job that lies states the honest digest of its code: it controls its process."""

    name: str
    family: str
    what: str
    expected: tuple[str, ...]
    """Ids of checks, of :data:`REPORT`, :data:`AUDIT` or :data:`REFUSALS`: any of them names the flaw, and the twin
    raises none."""
    session: str = "sft"
    spec: tuple[Change, ...] = ()
    data: Data | None = None
    files: Mapping[str, Callable[[list[Row]], str]] = field(default_factory=dict[str, Callable[[list[Row]], str]])
    """Files that are written next to the spec, by name, each with the function of the held-out items that writes it."""
    revises: str = ""
    """How the session's own model revises (``REVISIONS``); for sessions with revisions."""
    verify: str = ""
    """The text of ``verify.py`` next to the spec, a task of the user's own."""
    stage: str = ""
    """The stage whose job lies."""
    swap: Work | None = None
    """What the job works on instead of what was granted; it states the granted settings all the same."""
    lie: Lie | None = None
    output: str = "rows"
    """The rows that are changed."""
    spoil: Work | None = None
    """What else of its outputs is changed."""
    manifest: dict[str, Any] = field(default_factory=dict[str, Any])
    """What the job states wrongly in its manifest."""
    weights: float = 0.0
    """Share of noise that the job adds to the weights it saves."""
    later: Work | None = None
    """What is changed when the job has ended: its outputs, manifest and exit record."""
    person: Person | None = None
    """What someone does when the session waits for an answer."""
    tamper: Callable[[Path], None] | None = None
    """What is changed in the run folder of a session that has closed; an audit follows."""

    def changes_something(self) -> bool:
        """Return whether anything is planted at all."""
        hooks = (self.spec, self.data, self.swap, self.lie, self.spoil, self.manifest, self.weights, self.later)
        return any((*hooks, self.files, self.revises, self.verify, self.person, self.tamper))
