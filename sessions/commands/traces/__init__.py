"""`peergate traces`: recorded conversations of coding agents, as turns and states to learn from."""

from sessions.commands.lazy_group import lazy_app

_COMMANDS = {
    "ingest": "traces.ingest_command",
    "replay": "traces.replay_command",
    "stats": "traces.show_command",
    "show": "traces.show_command",
}
app = lazy_app({"Commands": _COMMANDS}, help="Read recorded conversations of coding agents.")
