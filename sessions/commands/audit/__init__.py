"""`peergate audit ...`."""

from sessions.commands.lazy_group import lazy_app

_COMMANDS = {
    "verify": "audit.verify_command",
    "list": "audit.list_command",
    "search": "audit.list_command",
    "show": "audit.verify_command",
    "log": "audit.timeline_command",
    "diff": "audit.timeline_command",
    "export": "audit.timeline_command",
    "anchor": "audit.anchors_command",
    "cosign": "audit.anchors_command",
    "rotate": "audit.anchors_command",
}
app = lazy_app({"Commands": _COMMANDS}, help="Read and verify the trail of a session.")
