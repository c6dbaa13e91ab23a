"""`peergate review ...`."""

from sessions.commands.lazy_group import lazy_app

_COMMANDS = {
    "ask": ("review.consult", "Ask one question: recommendation, reasoning, risks and an approval."),
    "request": ("review.consult", "Have files reviewed in full: issues with their lines, and recommendations."),
    "adversarial": ("review.consult", "Check the claims of finished work against its evidence."),
    "draft-spec": ("review.draft", "Have a session spec drafted from a goal, and checked."),
    "show": ("review.person", "Show the packet that waits for a person's verdict, and the form of one."),
    "give": ("review.person", "Hand in a person's verdict on the gate that waits."),
    "import": ("review.older", "Read a folder of free-text reviews of older trails as records."),
}
app = lazy_app({"Commands": _COMMANDS}, help="Ask for a review, give one, or read older ones.")
