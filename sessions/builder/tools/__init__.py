"""The builder's tools as they are carried out, by their names in :mod:`specs.trail.builder_tools`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sessions.builder.tools import (
    analysis_tool,
    history_tools,
    job_tools,
    library_docs,
    plot_tool,
    proposal_tools,
    reading_tools,
    review_tools,
    row_tools,
    stage_tools,
)
from sessions.builder.tools.tool_context import PhaseWork
from specs.trail.builder_tools import HELPER_TOOLS, TOOLS

_MODULES = (
    analysis_tool,
    history_tools,
    job_tools,
    library_docs,
    plot_tool,
    proposal_tools,
    reading_tools,
    review_tools,
    row_tools,
    stage_tools,
)
CARRY_OUT: dict[str, Callable[[PhaseWork, Any], str]] = {
    tool.name: next(vars(module)[tool.name] for module in _MODULES if tool.name in vars(module))
    for tool in (*TOOLS, *HELPER_TOOLS)
}
"""Each takes the work and its checked arguments and returns the result's text, or raises ``Refused``."""
