"""The nodes of the graph."""
