"""An MCP server for programs that manage sessions: they write specs, start and look; they neither build nor decide."""
