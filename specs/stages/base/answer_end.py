"""How an answer ended, and in which form it was asked."""

from __future__ import annotations

from typing import Any, Literal

from specs.system.digests import Count

Form = Literal["completion", "chat"]
"""How a model is prompted: bare text that it continues, or its chat template."""

Finish = Literal["eos", "stop", "length"]
"""How an answer ended: by the end token, before a stop string, or at the limit of tokens."""


Ids = tuple[Count, ...]
"""Token ids of an answer as they were written, those of a stop string included, the end token left out."""

TOKEN_IDS = ("answer_ids", "critique_ids", "revision_ids", "before_ids", "after_ids", "batches", "sketch")
"""Members of rows that hold ids, or digests and figures of training: for a witness, and nothing for people to read."""


def ended_once(row: Any) -> Any:
    """Return a row; a ValueError where what it says of its end contradicts itself. Early rows say nothing."""
    if row.finish is not None and row.truncated != (row.finish == "length"):
        raise ValueError(f"truncated is {row.truncated}, and finish is '{row.finish}'")
    if (row.stop is not None) != (row.finish == "stop"):
        raise ValueError(f"finish is '{row.finish}', and stop is {row.stop!r}")
    return row
