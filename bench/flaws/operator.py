"""What a flaw operator is: one change of a healthy session, and what has to stop it, stated before it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Data = Callable[[list[Row], list[Row]], None]
"""Changes the held-out items and the prompts in place, before the session is registered."""
Lie = Callable[[list[Row], Path], None]
"""Changes the rows of a job in place, in the job's process, before it writes its manifest; gets the run folder."""

FAMILIES = (
    *("leakage", "disguise", "labels", "design", "comparison", "parity", "answers", "samples", "scores", "curve"),
    *("weights", "packaging", "records", "human"),
)


@dataclass(frozen=True)
class Operator:
    """One planted flaw. A job that lies states the honest digest of its code: it controls its process."""

    name: str
    family: str
    what: str
    expected: tuple[str, ...]
    """Ids of checks, or beginnings of a refusal, any of which names the flaw. The twin raises none of them."""
    spec: tuple[tuple[str, str], ...] = ()
    data: Data | None = None
    stage: str = ""
    """The stage whose job lies."""
    lie: Lie | None = None
    manifest: dict[str, Any] = field(default_factory=dict[str, Any])
    """What the job states wrongly in its manifest."""
    weights: float = 0.0
    """Share of noise that the job adds to the weights it saves."""
