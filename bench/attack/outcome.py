"""What one family of attacks reports."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Outcome:
    """Counts of one family. An attack is *missed* if it changed something and nothing reported or refused it."""

    attempts: int = 0
    detected: int = 0
    missed: list[str] = field(default_factory=list[str])
    """One line for each missed attack, from which it can be repeated."""
    not_run: str = ""
    """Why the family did not run at all; empty if it ran."""

    def record(self, flag: bool, attack: str) -> None:
        """Count one attack; ``attack`` says in one line what was done."""
        self.attempts += 1
        self.detected += flag
        self.missed += [] if flag else [attack]
