"""How it flows: the session graph, jobs, ledger, command line. Start reading at ``sessions/graph.py``."""
