"""Raw rows of the kind that has a model write programs: answers alone. Whether one works is found out at the gate."""

from __future__ import annotations

from pydantic import model_validator

from specs.stages.base.sampling import Finish, Form, Ids, ended_once
from specs.system.digests import Contract, Count, omit_default


class CodeRow(Contract):
    """One answer to one problem."""

    unique_by = ("item", "sample")

    item: str
    sample: Count
    form: Form
    """How it was asked, which decides where its program begins."""
    prompt_tokens: Count
    output: str
    output_tokens: Count
    truncated: bool
    finish: Finish
    stop: str | None = omit_default()
    answer_ids: Ids
    _ended_once = model_validator(mode="after")(ended_once)
