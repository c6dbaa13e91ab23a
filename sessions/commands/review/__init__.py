"""`peergate review ...`."""

from sessions.commands.lazy_group import lazy_app

_COMMANDS = {
    "ask": "review.consult",
    "request": "review.consult",
    "adversarial": "review.consult",
    "draft-spec": "review.draft",
    "show": "review.person",
    "give": "review.person",
    "import": "review.older",
}
app = lazy_app({"Commands": _COMMANDS}, help="Ask for a review, give one, or read older ones.")
