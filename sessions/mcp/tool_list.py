"""Tools as an MCP client is shown them, the same way by every server."""

from __future__ import annotations

from collections.abc import Iterable

import mcp_types as types

from specs.trail.tool_arguments import Tool


def describe_tools(tools: Iterable[Tool], *, only_read: bool = False) -> list[types.Tool]:
    """Return tools with the schema of their arguments; ``only_read`` says that they change nothing."""
    hints = types.ToolAnnotations(read_only_hint=True) if only_read else None
    return [
        types.Tool(name=tool.name, description=tool.description, input_schema=tool.schema(), annotations=hints)
        for tool in tools
    ]
