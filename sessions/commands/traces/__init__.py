"""`peergate traces`: recorded conversations of coding agents, as turns and states to learn from."""

from __future__ import annotations

from sessions.commands.lazy_group import lazy_app

app = lazy_app(
    {
        "Commands": {
            "ingest": ("traces.ingest_command", "Read session files of Claude Code into turns and states."),
            "replay": (
                "traces.replay_command",
                "Ask teachers what they would have done, and make pairs to learn from.",
            ),
            "stats": ("traces.show_command", "Print what is in a folder of traces."),
            "show": ("traces.show_command", "List the states of a folder of traces, or show one with its history."),
        }
    },
    help="Read recorded conversations of coding agents.",
)
