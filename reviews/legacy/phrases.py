"""The words that state a verdict in older reviews, and the words that take one back, limit it or make it doubtful.

English only. A list is written as alternatives between bars; a blank in it stands for blanks, "_" or "-".
"""

from __future__ import annotations

import re
from typing import Literal

Mark = Literal["approve", "approve_with_conditions", "revise", "reject", "unclear"]
Marked = tuple[tuple[Mark, re.Pattern[str]], ...]


def _any(words: str) -> str:
    """Return the pattern of one of the alternatives."""
    parts = [re.sub(r"\s+", r"[\\s_-]+", one.strip()) for one in re.split(r"\s\|\s", words)]
    return "(?:" + "|".join(parts) + ")"


def _words(words: str) -> re.Pattern[str]:
    """Return the pattern of one of the alternatives as whole words, in either case."""
    return re.compile(rf"(?i)\b{_any(words)}\b")


_WITH = _any(
    r"""conditions? | notes? | changes | revisions? | safeguards? | comments? | caveats? | reservations? | nits
    | fixes | suggestions | modifications | concerns | edits | guardrails | recommend\w+ | follow-?ups?
    | improvements? | considerations | observations | remarks | caution | care | requirements?
    | obligations?"""
)
_HEDGE = _any(
    """conditional(?:ly)? | guarded | provisional(?:ly)? | tentative(?:ly)? | qualified | limited
    | cautious(?:ly)? | soft"""
)
_YES = _any(
    "approve[ds]? | approval granted | accept(?:ed|able)? | go | lgtm | yes | proceed | ready | scale | ship it"
)
_REJECTS = _any(
    """no[\\s_-]*go | reject(?:ed|s)? | vetoe?d? | disapproved? | unapproved
    | (?:approval )?(?:denied|withheld|refused|revoked)
    | not (?:yet )?(?:approved?|accepted|ready|a go|go)
    | (?:do not|don't|cannot|can't) (?:approve|proceed|launch|scale|merge|ship)"""
)
_CONDITIONS = (
    rf"{_YES}\s*[,(:\u2013\u2014-]*\s*(?:but\s+)?with\s+(?:[\w-]+\s+){{0,2}}?{_WITH}|{_HEDGE}\s+(?:an?\s+)?(?:approval|{_YES})"
    rf"|{_YES}\s*\(\s*{_HEDGE}\s*\)|(?:acceptable|accepted|good\s+enough)\s+for\s+(?:an?\s+)?mvp"
    r"|issues\s+found\s*[,(:;\u2013\u2014-]+\s*(?:but\s+)?approv(?:e|ed|al)(?:\s+with\s+\w+\)?)?"
)
_REVISES = _any(
    """revise(?: and resubmit)? | (?:major |minor )?revisions? (?:required|needed|requested) | modify | iterate
    | rework | needs? (?:more |some |further )?(?:work|changes|revisions?|rework)
    | changes (?:are )?(?:requested|required|needed) | request(?:ing)? changes | issues found"""
)
_APPROVES = _any(
    """approve[ds]? | approval granted | accepted | good to go | go ahead | go | scale(?: up)? | proceed
    | fixes verified | (?:production )?ready(?: to (?:proceed|go))? | lgtm | looks good to me | ship it
    | green light"""
)
_NEITHER = _any(
    "(?:yellow|amber|orange|red) light | investigate | abstain(?:ed)? | deferr?ed | escalated? | inconclusive"
)
_END = r"(?![\w'\u2019-])"
MARKS: Marked = (
    ("reject", re.compile(rf"(?i){_REJECTS}{_END}")),
    ("approve_with_conditions", re.compile(rf"(?i)(?:{_CONDITIONS}){_END}")),
    ("revise", re.compile(rf"(?i){_REVISES}{_END}")),
    ("approve", re.compile(rf"(?i){_APPROVES}{_END}")),
    ("unclear", re.compile(rf"(?i){_NEITHER}{_END}")),
)
YES_NO: Marked = (
    ("approve", re.compile(rf"(?i)(?:yes|true|pass(?:ed)?){_END}")),
    ("reject", re.compile(rf"(?i)(?:no|false|hold|stop|fail(?:ed)?|abort(?:ed)?|blocked){_END}")),
)
"""What counts as a verdict behind a label that announces one, and nowhere else."""
# Words that are common in prose are a verdict without a label only when they are shouted.
UNMISTAKABLE = re.compile(
    rf"[A-Z][A-Z _/-]*|(?i:approve[ds]?|approval\s\w+|lgtm|looks\s.*|good\sto.*|ship\sit|green\slight|fixes.*"
    rf"|no[\s_-]?go|reject(?:ed)?|not\s.*|unapproved|disapproved?|changes\s.*|request.*|issues.*|revise\sand.*|do(?:n't|\snot)\s.*"
    rf"|{_HEDGE}\s.*|.*\b(?:with|mvp)\b.*|go\s*\(.*|.*ready)"
)
_PURPOSE = (
    r"(?:\s+(?:for|to|with)\s+(?:(?:the|a|this|full|next|real|main|planned|proposed|pilot|~?\d[\w.,-]*)\s+){0,3}"
    r"(?:production|scal(?:e|ing)|merge|launch|training|deployment|run|stage|phase|step|gate|sft|dpo|pilot|evaluation|plan"
    r"|experiment|proceed|go)\b(?:\s+(?:run|pilot|stage|phase|evaluation|\d+|(?-i:[A-Z])\b|to\s+\d[\w.,]*))?"
    r"(?:\s+(?:examples|rows|items|shards))?)"
)
"""What a gate may open for: "ready for production", "proceed to the next stage"; "proceed to fix it" does not count."""
REASON = re.compile(
    r"(?i)(?:\s+(?:(?:the|this|that|your)\s+(?:[\w-]+\s+)?(?:run|gate|pilot|plan|stage|phase|changes?|design|experiment"
    r"|proposal|evaluation|data|pr|diff)|this|it))?"
    rf"{_PURPOSE}?(?:\s+as\s+\w+)?\s*"
    r"(?:$|[.;!\u2013\u2014(]|-\s|,\s*(?:but|no|all|ready)\b|\b(?:because|since)\b)"
)
"""How a sentence may continue after an approval."""
BUT = re.compile(
    rf"(?i){_PURPOSE}?[\s,;:.(\u2026\u2013\u2014-]*\b"
    + _any(
        r"""but | provided | subject to | once | if | only | after | pending | unless | until | on condition
        | assuming | conditional\w* | contingent | as long as | so long as | with one \w+ | for now"""
    )
    + r"\b"
)
BINDS = re.compile(
    _words(
        r"""if | unless | until | provided | provisional\w* | subject to | pending | prior to | as long as
        | contingent | (?:pre)?condition\w* | assuming | safeguards? | guard\w* | caveats? | only | once
        | must | without | ha(?:s|ve) to | need(?:s|ing)? | require[sd]? | before(?=\s+\w) | except\w*
        | abort | stop if | do not | no later | mandatory | at most | first"""
    ).pattern
    + r"|\[ \]\s*\w"
)
TURNS = re.compile(
    _words(
        r"""not | never | no | none | nobody | nicht | kein\w* | aber | pas | pero | jamais | wish | nothing
        | cannot | neither | without | hardly | instead | rather | however | although | maybe | perhaps
        | guess | hope\w* | probably | in (?:principle|theory) | would | could | might | said | says?
        | claim\w* | was | were | or | versus | vs | example | template | default | placeholder | draft
        | outdated | obsolete | withdr\w+ | retract\w* | supersed\w* | revok\w* | kidding | joking
        | dreams? | sarcas\w* | reject\w* | declin\w+ | refus\w+ | denied | revis\w+ | iterat\w+
        | modif\w+ | investigat\w+ | minus | else | options? | variants? | plan \w | alternatives?
        | struck | wrong | sure | pigs | by (?:the )?builder"""
    ).pattern
    + r"|n't\b|\?|\u2026|\.\.|/s\b|\u00a4|__|[^\W\d_a-zA-Z]"
)
HARMLESS = re.compile(
    r"(?i)\b(?:no|zero|without(?:\s+any)?|none\s+of\s+the)\s+(?:\w+\s+){0,2}?"
    + _any(
        r"""blockers? | issues? | concerns? | objections? | problems? | findings | conditions? | changes?
        | functions | regressions? | defects? | leaks? | leakage | risks?"""
    )
    + r"(?:\s+(?:found|needed|required))?\b|\bno\s+(?:further|more)\s+\w+\s+(?:is|are)\s+(?:needed|required)\b[^.;]*|\b"
    + _any(
        r"""nothing (?:to add|prevents|blocks) | found nothing | conditions?:\s*none
        | null(?: hypothesis)? is rejected | no need | no[nt] blocking"""
    )
    + r"\b"
)
"""Phrases that deny a fault; their "no" and "blocker" are no doubt."""
UNDONE = _words(
    r"supersed\w* | withdr[ae]w\w* | retract\w* | revok\w* | rescind\w* | overrul\w* | obsolete | no longer"
)
HIDDEN = re.compile(UNDONE.pattern + r"|^\W*conditions?:")
"""What counts even within a quote or a request."""
TAKEN_BACK = re.compile(
    UNDONE.pattern
    + "|"
    + _words(
        r"""edit | tak(?:e|ing) (?:it|this|that) back | update[ds]? | erratum | correction
        | correct myself | corrected | then again | wait | hardly | reflection | disagree
        | do not agree | cancell?ed | void | expire[sd]? | overrid\w*
        | mistaken? | (?:line|verdict|the) above | not mine | in error | kidding | joking | draft
        | template | example | mock | simulat\w* | test test | scratch that | forget | struck
        | changed my mind | how to | fill (?:it |this )?in | translated | builder's
        | from: (?:the )?builder"""
    ).pattern.removeprefix("(?i)")
    + r"|(?:^|[.!?(,])\s*(?:well\W+)?(?:no|not|nope|never|as\s+if)\b\W*$"
)
AGAINST = re.compile(
    _words(
        r"""caution | crash\w* | fail(?:s|ed|ing) | too quick | treat it | do not act | not valid | guess\w* | leaks
        | blocking | blockers? | blocked | critical | must-fix | wrong (?:rows|data|run) | not a yes | is the author
        | is missing | i only | have not read | evidence was | however | though | approv(?:al|e[ds]?|ing) | verdict
        | decision | sign-?off | go-ahead | reject(?:ed|ion)? | no-go | veto\w* | unapproved | disapprov\w+ | light"""
    ).pattern
    + r"|\b(?-i:GO|NO\s+GO|SCALE|READY|ITERATE|REVISE|MODIFY|HOLD|STOP|VETO)\b|\bstop!|confidence:\s*0?\.[0-4]"
)
"""Words beside an approval that name a fault or another verdict: they leave it open."""
ACTS = _words("proceed | launch | gate | recommend | go ahead | scal(?:e|ing)")
LIMITS = re.compile(
    r"(?i)^\W*"
    + _any(
        r"""limits? | scope | budget | terms | catch | stop rule | exit criterion | restrictions? | open points?
        | to do | follow-?ups? | obligations"""
    )
    + r"\b[^:.]{0,40}:|\b"
    + _any(
        r"""nothing\s+else(?!\s+to|\W*$) | no more than | stay (?:below|under) | waits? | separate decision
        | lapses? | under no circumstances | got to | covers | part of the deal | strings? attached
        | please | expect(?:ed)? | but | responsibility | assumes | kill | essential | hand check | owe
        | remember | nobody | to be | hinges | ends the | merge after | restrictions"""
    )
    + r"\b"
)
"""What limits a plain approval in words that do not say how: it is left open."""
NONE = re.compile(r"(?i)\W*(?:none|n/?a|nil|nothing|no(?:\s+\w+){0,3})(?:\s+(?:found|of\s+note))?\W*$")
LISTED = re.compile(r"\s*[:,]|\s+(?:to|on|in|for|that|listed|below)\b")
_OPTION = r"(?:no-go|go|yes|no|approve[ds]?|reject(?:ed)?|modify|revise|scale|iterate|investigate)"
CHOICE = re.compile(
    rf"(?i)\b{_OPTION}(?:\s*[/|]\s*[\w-]+)+|\[ \]\s*{_OPTION}(?:\s+with\s+\w+)?\W*$|^\W*\d+[.)]\s*(?:yes|no)\b"
)
"""Options to choose from, and the answer to a numbered question: neither is a verdict."""
LABEL = re.compile(
    r"(?i)^[^\w\u00a4(]*(?:\d+[.)]\s*)?(?:(?:final|overall|my|our|gate|review|go\s*/\s*no-?go)\s+){0,2}(?:(?P<strong>decision"
    r"|verdict|approval|sign-?off|approve[ds]?(?=\s*[:=]\s*\S)|go\s*/\s*no-?go|ready\s+(?:for\s+production|to\s+proceed)(?=\s*:))"
    r"|(?P<weak>gate|recommendation|summary|status|overall|(?:overall\s+)?assessment|outcome|conclusion))(?:\s+status)?\s*"
    r"(?:(?:[:=|\t\u2013\u2014\u2192]|->|=>|-\s)[\s>=|]*(?P<value>.*?)[\s|]*)?$"
)
PART = re.compile(
    r"(?i)^\W*(?:\d+[.)]\s*)?(?:(?:option|variant|plan|alternative|approach|choice|proposal|route|scenario|question"
    r"|point|item|reviewer|round|attempt|finding|row)\s*#?(?:\d+|[a-h])\b|[qa]\s*#?\d+\b|[a-h1-9]\)?(?=\s*[:|=\u2013\u2014)-])"
    r"|(?:codex|gemini|claude|gpt\S*)\W*$)[^:|=\u2013\u2014]{0,60}(?:\s*[:|=\u2013\u2014)-]\s*(?P<value>.*))?$"
)
"""A title or a label of one part of what was judged: a verdict beside it may speak of that part only."""
CHECKED = re.compile(r"^\W*?(?:\[[xX\u2713\u2714]\]|\u2611)\s*(?P<value>.+)$")
NOT_MEANT = re.compile(
    r"(?i)\s*(?:/|\||,?\s*or\b)|\W*(?:would|was|were|could|might|said|says|is\s+(?:not|wrong)|isn't)\b"
    r"|[^.;:]{0,40},\s*said\b"
)
"""A refusal with this behind it is reported, not given."""
REFUSAL_ENDS = re.compile(r"\s*(?:$|[.,;!(\u2013\u2014-]|:\s*\D|(?:for|until|because|since)\b)")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[^a-z])")
BAD, CAUTION = "\u274c\u26d4\U0001f6d1\U0001f534\U0001f6ab\U0001f44e", "\u26a0\U0001f7e1\U0001f7e0"
