"""The tools of a reviewer: it looks into the evidence of the packet, and changes nothing."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from specs.trail.row_tools import Arguments, CompareRows, Grep, QueryRows, ReadArtifact
from specs.trail.tool_arguments import Tool, tool_of


class MetricLines(Arguments):
    """Show which lines of the rows a metric counts, or is over, as it is computed by code."""

    metric: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    """An id as the packet's metrics have it."""


TEXT_TOOLS: tuple[Tool, ...] = tuple(map(tool_of, (QueryRows, CompareRows, Grep, ReadArtifact)))
"""Those of a requested review."""
REVIEWER_TOOLS: tuple[Tool, ...] = (*TEXT_TOOLS, tool_of(MetricLines))
"""Those of a gate. In a fixed order: models cache what does not change."""
