"""Sessions whose builder is a client outside: the tools over MCP, on stdio or HTTP."""
