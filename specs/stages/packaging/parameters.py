"""Parameters of the kind that packages a checkpoint."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from specs.stages.stage import Placed


class PackageParameters(Placed):
    """Save the model for use, reload it in a fresh process and compare greedy outputs."""

    probe_items: Annotated[int, Field(ge=1, le=1000)] = 10
    max_new_tokens: Annotated[int, Field(ge=1, le=4096)] = 64
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
