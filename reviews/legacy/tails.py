"""What follows a verdict phrase: nothing, a reason, a condition, or what takes the verdict back. English only.

An approval counts only with a tail that is known to be harmless; everything else makes it conditional or unclear.
"""

from __future__ import annotations

import re
from typing import Literal

from reviews.legacy.turns import HARMLESS, NOT_MEANT_AFTER
from reviews.legacy.vocabulary import END, PURPOSE, Head, Mark, Place

_FOREIGN = (
    r"nicht|kein\w*|nein|niet|geen|pas|ne|jamais|aucun\w*|non|n\u00e3o|sem|senza|ning\u00fan|ei|inte|ikke|nie"
    r"|nej|nem|nu"
    r"|yok|de\u011fil|t\u00edmto|neni|aber|sauf|mais|pero|sino|ma|wenn|falls|sobald|bevor|si|apr\u00e8s"
)
_SCRIPTS = "[\u0400-\u04ff\u0370-\u03ff\u0590-\u06ff\u0900-\u0dff\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
_NEGATED = re.compile(
    r"(?i)(?<![\w-])(?:not|never|no|cannot|neither|nor|none|nobody|nothing|hardly|without|instead|rather"
    r"|anything\s+but"
    r"|" + _FOREIGN + r")(?![\w-])|n't\b|\b(?:do|does|can|wo|would|should|is|are|was|were|could)nt\b"
    r"|" + _SCRIPTS
)
# In a reason ("GO - the sentinels do not trigger") a negation is about the evidence, unless it is about going on.
_NEGATED_LAUNCH = re.compile(
    r"(?i)^\W*(?:just\s+|but\s+|only\s+|though\s+)?(?:not|never|no|nobody|none|without)\b"
    r"|(?:\b(?:not|never|no|nobody|cannot|without|don't|do\s+not|can't|won't)\b|n't\b)\W+(?:\w+\W+){0,3}?"
    r"(?:go(?:ing)?|approv\w*|proceed\w*|launch\w*|scal\w+|train(?:ing)?|ready|run(?:ning)?|start\w*|yet|until"
    r"|before|unless"
    r"|valid|ship\w*|open\w*|trust\w*|accept\w*|continu\w*|recommend\w*|sure|convinced|agree|safe|sound|hold"
    r"|enough|now)\b"
    r"|(?<![\w-])(?:" + _FOREIGN + r")(?![\w-])|" + _SCRIPTS
)
_CONDITION_ALWAYS = (
    r"if|unless|until|as\s+soon\s+as|provided|providing|provisional\w*|subject\s+to|pending|prior\s+to"
    r"|as\s+long\s+as|so\s+long\s+as"
    r"|the\s+(?:rest|others?|remainder)|everything\s+else|contingent|conditional\w*|condition(?:ed)?\s+(?:on"
    r"|that)|on\s+(?:the\s+)?condition|assuming|conditions|safeguards?"
    r"|guarded|guardrails?|only\W*$|caveats?|modulo|barring|limited\s+to|must|ha(?:s|ve)\s+to|needs?\s+to|abort"
    r"|only\s+(?:if|after|once|when|for|in|with|the)|once\s+(?:we|you|the|all|this|it|that|these|those)"
    r"|(?:before|after)\s+(?:you|we|\w+ing)|mvp"
)
_WITH = (
    r"with\s+(?:(?:[\w-]+\s+){0,3}?(?:changes|revisions?|fixes|notes?|nits?|conditions?|safeguards?|comments?"
    r"|caveats?|reservations?"
    r"|suggestions?|concerns?|edits|guardrails|recommendations?|follow-?ups?|improvements?|remarks|caution|care"
    r"|requirements?"
    r"|modifications?|restrictions?|limits?|following)|(?:one|two|three|\d))"
)
_CONDITION_IN_REASON = re.compile(r"(?i)\b(?:" + _CONDITION_ALWAYS + r")(?!\w)")
_CONDITION = re.compile(
    r"(?i)\b(?:"
    + _CONDITION_ALWAYS
    + r"|once|when|after|before|except\w*|need\w*|required?|first|following|stop|w/|reduced"
    r"|smaller|fewer|shorter|capped|restricted|at\s+most|up\s+to"
    r"|" + _WITH + r")(?!\w)"
)
_TURN_ALWAYS = (
    r"but|however|although|though|maybe|perhaps|guess|hopefully|in\s+principle|in\s+theory|for\s+now|sarcas\w*"
    r"|ironic\w*"
    r"|if\s+you\s+(?:ask|like|believe|want|must|insist|trust)|who\s+needs|who\s+cares|why\s+not|what\s+could"
    r"|as\s+if|yeah|scratch|withdr\w+|retract\w*|revok\w*|supersed\w*|wait"
    r"|kidding|joking|jokes?|lol|haha|dreams?|pigs|my\s+foot|freezes|reject\w*|declin\w+|refus\w+|deni(?:ed|al)"
    r"|rework\w*|redo|regret\w*|revis\w+|iterat\w+|investigat\w+"
    r"|if\s+by|struck|crossed|deleted|template|example|outdated|obsolete|stale|default|placeholder|void"
    r"|so-called|supposedly|allegedly"
)
_TURN_MARKS = r"|\bpending\W*$|__|/s\b|\u2026|\.\.|\?|\u00a4{2,}"
_TURN_IN_REASON = re.compile(r"(?i)\b(?:" + _TURN_ALWAYS + r")\b" + _TURN_MARKS)
_TURN = re.compile(
    r"(?i)\b(?:"
    + _TURN_ALWAYS
    + r"|yet|probably|possibly|suppose|likely|hope|wish|sort\s+of|kind\s+of|almost|nearly|sure"
    r"|said|says?|claim\w*|instead|changed|was|were|should\s+have|would|could|might|or|versus|vs|alternativ\w+"
    r"|otherwise"
    r"|sorry)\b" + _TURN_MARKS
)
_CONTRAST = re.compile(r"(?i)\b(?:but|however|although|though|yet)\b")
_VERDICTS = re.compile(
    r"(?:(?i:\bno[\s_-]?go)|\b(?:MODIFY|ITERATE|REVISE|REJECT(?:ED)?|INVESTIGATE|HOLD|STOP|GO|SCALE))" + END
)
_OPTION = re.compile(
    r"(?i)\b(?:options?|variants?|alternatives?|choices?|candidates?|route|scenario|plan\s+\w)\b|^\s*(?:(?:with|for|on"
    r"|to)\s+)?\(?[a-h1-9]\)?(?=[\s.,;:)]|$)"
)
_PUNCTUATED = re.compile(r"\s*[.,;!|()\]\u2013\u2014\u2192-]|\s*:")
_REASONED = re.compile(r"(?i)\s*(?:[.;:!(\u2013\u2014\u2192]|-+\s|because\b|since\b|as\b|given\b)")
_PURPOSED = re.compile(r"(?i)\s+(?:(?:for|to|with|on|into)|for\s+(?:[\w-]+\s+){1,4}?)\s*\b" + PURPOSE)
_WITH_FEELING = re.compile(r"(?i)\s+with\s+(?:(?:high|full|great)\s+)?(?:confidence|pleasure)")
_OBJECT = re.compile(
    r"(?i)\s+(?:(?:the|this|that|all|it|our|your|from|now|because|since|given|overall"
    r"|by\s+(?:me|us|codex|gemini|the\s+reviewer|reviewer)|as\s+(?:planned"
    r"|proposed|is|it\s+stands|submitted)"
    r"|of\s+(?:this|it|the)|in\s+(?:\w+\s+){0,2}(?:shards?|steps|stages|phases|parts|batches))\b|and\s+(?:proceed"
    r"|go|merge|ship|launch|scale|train|start|move|good|ready|well|no)\b)"
)
_BEFORE_COMMA_ONLY = re.compile(
    r"(?i)\s*,\s*(?:but|however|although|though|only|ready|everything|no|nothing|all|every|each|thanks?|great"
    r"|nice|good|well"
    r"|if|once|provided|pending|subject|conditional\w*|contingent|assuming|unless|until|before|and|proceed"
    r"|go|scale|ship|merge|please|on|as|so|the|this|it|for|after|we|you|i|because|since|given|see|both|limits"
    r"|numbers)\b"
)
_LOOSE = re.compile(
    r"(?i)\s+(?:when|for|to|on|in|as(?!\s+(?:planned|proposed|specified|described|written|designed|agreed|is\b"
    r"|it\s+stands)))\b"
)
_ASIDE = re.compile(r"\s*\((?P<words>[^()]{1,60})\)")
_FINE_ASIDE = re.compile(
    r"(?i)^(?:\s*[\w'-]+[\s,;:/-]+){3,}[\w'%.-]+\s*$|.*\d|\s*(?:(?:with\s+)?(?:high|full"
    r"|very\s+high)\s+confidence|confidence\W+\w+|final|unanimous\w*"
    r"|confirmed|full|all|yes|go|approved?|scale|proceed|as\s+planned|as\s+proposed|no\s+\w+|\u00b7+)\s*$"
)
_LISTED = re.compile(
    r"(?i)\s+(?:to|in|on|for|as|with|listed|below|above|described|see|outlined|noted|attached|that|which)\b"
)
_NOT_THE_RUN = re.compile(
    r"(?i)\s+(?:the\s+)?(?:null|h0|hypothes[ie]s|samples?|examples?|rows?|completions?|pairs?|outputs?|column"
    r"|items?)\b"
)


def with_tail(head: Head, rest: str, place: Place) -> Mark | None:
    """Return what a verdict phrase means with the rest of its sentence; None when it is no statement at all.

    Args:
        head: the phrase.
        rest: what follows it in the same sentence, with quoted parts masked.
        place: where the statement stands.
    """
    bare = rest if re.search(r"[\w\u00a4?\u2026]|\.\.", rest) else ""
    if head.mark not in ("approve", "conditions"):
        return _refusal(head.mark, bare, place)
    if not bare:
        return head.mark
    harmless = HARMLESS.sub(lambda hit: " " * len(hit.group()), rest)
    shape = _shape(harmless, place, head) if re.search(r"[\w\u00a4]", harmless) else "plain"
    if (aside := _ASIDE.match(rest)) and not _FINE_ASIDE.match(aside["words"]):
        # "GO (example)", "Approved (outdated)": a word or two in brackets say what kind of verdict it is.
        known = head.mark == "conditions" or _CONDITION.search(aside["words"])
        return "conditions" if known and not _NEGATED.search(aside["words"]) else "unclear"
    if head.mark == "conditions" and (
        shape == "title" or re.match(r"\s*,", harmless) or (shape != "plain" and _LISTED.match(harmless))
    ):
        shape = "plain"
    if shape is None:
        return "unclear" if place != "alone" else None
    if shape != "plain":
        return "unclear"
    if _OPTION.search(harmless) or _VERDICTS.search(rest):
        return "unclear"
    lgtm = re.match(r"(?i)\W*(?:lgtm|looks)", head.text)
    if lgtm and re.search(r"(?i)\bif\b", harmless):
        return "unclear"
    reason = place != "alone" and _REASONED.match(rest) is not None
    if (_NEGATED_LAUNCH if reason else _NEGATED).search(harmless):
        return "unclear"
    strict = reason or _CONTRAST.search(harmless) is not None
    conditional = head.mark == "conditions" or (_CONDITION_IN_REASON if strict else _CONDITION).search(harmless)
    # "Yes, but only for the pilot" is a condition; "yes, but the split leaks" leaves all open.
    turned = _CONTRAST.sub(" ", harmless) if conditional else harmless
    if (_TURN_IN_REASON if reason else _TURN).search(turned):
        return "unclear"
    return "conditions" if conditional else "approve"


def _shape(rest: str, place: Place, head: Head) -> Literal["plain", "option", "title"] | None:
    """Say how a sentence goes on after an approving phrase; None when it goes on in no known way."""
    if place == "alone" and re.match(r"\s*:", rest):
        return "title"
    if company := re.match(r"(?i)\s*,(?=\s*with\b)", rest):
        known = _CONDITION.search(rest) or _WITH_FEELING.match(rest[company.end() :])
        return "plain" if known else "option"
    if re.match(r"\s*,", rest):
        return "plain" if _BEFORE_COMMA_ONLY.match(rest) else "option"
    if purpose := _PURPOSED.match(rest) or _WITH_FEELING.match(rest):
        after = rest[purpose.end() :]
        again = _PURPOSED.match(after) is not None or _WITH_FEELING.match(after) is not None
        if again or re.search(r"[\w\u00a4]", after) is None:
            return "option" if again else "plain"
        return _shape(after, place, head)
    if _PUNCTUATED.match(rest):
        return "plain"
    if _LOOSE.match(rest) and re.match(r"(?i)(?:ready|proceed|go\s+ahead)", head.text):
        return None
    if re.match(r"(?i)\s+(?:to|into|with|on\s+to|down|over|back|through)\b", rest):
        return "plain" if re.match(r"(?i)\s+with\b", rest) and _CONDITION.match(rest.lstrip()) else "option"
    if _CONDITION.match(rest.lstrip()) or (place != "alone" and _OBJECT.match(rest)):
        return "plain"
    return (
        "plain"
        if re.match(
            r"(?i)\s+(?:from\s+(?:me|us|my)|as\s+(?:all|the|every|each|it|this|planned|proposed|specified|is\b)"
            r"|because|since|given|now|but|though|however|and\s+(?:proceed"
            r"|go|merge|ship|launch|scale|start|no))\b",
            rest,
        )
        else None
    )


def _refusal(mark: Mark, rest: str, place: Place) -> Mark | None:
    if "?" in rest or (mark != "conditions" and _NOT_THE_RUN.match(rest)):
        return None
    if re.search(r"(?i)^\W*(?:options?|variants?|alternatives?)\b|^\W*\(?[a-d]\)?(?=\W|$)|^\W*nothing\b", rest):
        return "unclear"
    if NOT_MEANT_AFTER.match(rest):
        return "unclear"
    if place == "alone":
        if re.match(r"\s*:", rest) and mark == "denied":
            # "Not approved: the new threshold" refuses a part.
            return "unclear"
        if not re.match(
            r"\s*(?:$|[.,;:!()\u2013\u2014]|-)|(?i:\s+(?:for|until|because|since|as|yet|on|at|by|to|this|the|it)\b)",
            rest,
        ):
            return None
        if re.match(r"(?i)\s+(?:the|this|it|to|on|at|by|as)\b", rest) and mark == "revise":
            return None
    return mark
