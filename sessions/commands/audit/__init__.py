"""`peergate audit ...`."""

from sessions.commands.lazy_group import lazy_app

_COMMANDS = {
    "verify": ("audit.verify_command", "Verify a trail and its evidence, offline and read-only."),
    "list": ("audit.list_command", "List the entries of a trail, oldest first."),
    "search": ("audit.list_command", "List the entries that hold a text; the filters are those of list."),
    "show": ("audit.verify_command", "Show one entry with everything it points to, or trace a number."),
    "log": ("audit.timeline_command", "Print the timeline of a session: gates, who judged, outcomes, costs."),
    "diff": ("audit.timeline_command", "Compare two entries and what they point to."),
    "export": ("audit.timeline_command", "Write the trail as a folder that anyone can verify."),
    "anchor": ("audit.anchors_command", "Keep the newest signed head elsewhere."),
    "cosign": ("audit.anchors_command", "Check a trail and sign its newest head as a witness or as a person."),
    "rotate": ("audit.anchors_command", "Replace the signing key of a role in every open trail."),
}
app = lazy_app({"Commands": _COMMANDS}, help="Read and verify the trail of a session.")
