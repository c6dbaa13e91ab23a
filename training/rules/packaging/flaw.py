"""What is wrong with a checkpoint: the layer, the file, what was found and what to do."""

from __future__ import annotations

from typing import Literal, NamedTuple

Layer = Literal[
    "structure",
    "config",
    "weights",
    "tokenizer",
    "template",
    "generation",
    "training",
    "lineage",
    "digests",
    "gguf",
    "reload",
    "throughput",
]


class Flaw(NamedTuple):
    """One thing that is wrong."""

    layer: Layer
    name: str
    """The name of the rule that found it, such as ``missing_tensor``."""
    file: str
    description: str
    """What was found, with both values."""
    fix: str

    def line(self) -> str:
        """Return it as one line."""
        return f"{self.layer}: {self.file}: {self.description} ({self.fix})"


class NotRun(Exception):
    """A rule that applies could not be carried out; the message says why."""

    applies = True


class NotApplicable(NotRun):
    """The rule does not apply, for example without a base or an export."""

    applies = False
