"""The verdict of a review, read from whole sentences; whatever is not clearly a verdict is undetermined.

A statement is what follows a label ("Verdict: ..."), stands below a heading that is one, is ticked, or is the first
sentence of a text. It counts only if a phrase below is followed by nothing, a reason or a condition. Two statements
that differ, and an approval next to a critical finding or a word that takes it back, leave a file undetermined.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from reviews.legacy.own_words import ReviewLine, Words, heading
from reviews.legacy.records import LegacyVerdict

Mark = Literal["approve", "approve_with_conditions", "revise", "reject", "unclear"]


_BOLD = 7
"""Level of a bold line, the deepest heading."""


class VerdictReading(NamedTuple):
    """What a text decided, the line that says so, and why it is undetermined if it is."""

    verdict: LegacyVerdict | None
    why: str = ""
    line: int | None = None


class Statement(NamedTuple):
    """What one sentence decides."""

    line: int
    mark: Mark
    binds: bool = False


_MINOR = r"(?:minor\s+|small\s+|a\s+few\s+|some\s+|one\s+)?"
_ATTACHED = (
    r"(?:conditions?|notes?|changes|revisions?|safeguards?|comments?|caveats?|reservations?"
    r"|nits?|fix(?:es)?|edits|issues"
    r"|suggestions|modifications|concerns|follow-?ups?|improvements?|warnings?|caution|recommendations|requirements?)"
)
_YES = (
    r"(?:approve[ds]?|approval|accept(?:ed|able)?|go|lgtm|proceed|ready(?:\s+to\s+(?:merge"
    r"|ship|proceed|go))?|ship\s+it|merge)"
)
_PHRASES: tuple[tuple[Mark, str], ...] = (
    ("reject", r"no[\s-]?go|(?:weak\s+|strong\s+)?reject(?:ed)?|veto(?:ed)?|disapproved?|unapproved"),
    ("reject", r"approval\s+(?:denied|withheld|refused)|(?:patch|change)\s+is\s+incorrect"),
    ("reject", (
        r"(?:should\s+|must\s+|do(?:es)?\s+|can)?n(?:ot|'t)\s+(?:yet\s+)?(?:be\s+)?(?:a\s+go"
        r"|" + _YES + r"|merged|shipped|launch(?:ed)?)"
    )),
    ("reject", (
        r"do\s+not\s+(?:approve|proceed|merge|ship|launch)|cannot\s+(?:approve|proceed"
        r"|be\s+(?:approved|merged))"
    )),
    ("approve_with_conditions", (
        rf"{_YES}\s*[,(:–—-]*\s*(?:but\s+)?with\s+{_MINOR}{_ATTACHED}|(?:conditional|qualified"
        rf"|guarded)(?:ly)?\s+{_YES}"
    )),
    ("approve_with_conditions", (
        rf"{_YES}\s*\((?:conditional|guarded|provisional)\w*\)|pass(?:ed)?\s+with\s+{_MINOR}{_ATTACHED}"
    )),
    ("approve_with_conditions", (
        rf"{_YES}\s*[,;–—-]?\s*(?:after|once|if|pending|provided|subject\s+to|conditional\s+on)\b(?=\s+\w)"
    )),
    ("approve_with_conditions", rf"{_YES}\s*[,;–—-]?\s*just\s+{_MINOR}nits?"),
    ("revise", (
        r"(?:request(?:ed|ing)?|require[ds]?)\s+changes|changes\s+(?:requested|required"
        r"|needed)|revise(?:d)?(?:\s+and\s+resubmit)?"
    )),
    ("revise", (
        r"needs?[\s-](?:work|attention|changes|(?:a\s+)?(?:major\s+)?revisions?)|major\s+revisions?"
        r"|modify|rework|iterate"
    )),
    ("approve", (
        r"approve[ds]?|approval\s+granted|lgtm|looks\s+good(?:\s+to\s+me)?|ship\s+it|accept(?:ed)?"
        r"|go|(?:patch|change)\s+is\s+correct"
    )),
    ("approve", (
        r"(?:there\s+are\s+)?no\s+(?:blocking\s+|critical\s+|major\s+|material\s+|further\s+)?(?:issues"
        r"|findings|problems|concerns|objections|blockers)(?:\s+(?:found|remain))?"
    )),
    ("approve", r"ready(?:\s+(?:to|for)\s+(?:merge|ship|proceed|go|production))?|good\s+to\s+go"),
)  # fmt: skip
_LABELLED: tuple[tuple[Mark, str], ...] = (
    ("approve_with_conditions", rf"(?:yes\s*,?\s*)?with\s+{_MINOR}{_ATTACHED}"),
    ("approve", r"yes|pass(?:ed)?|proceed|merge"),
    ("reject", r"no|fail(?:ed)?|block(?:ed)?|hold|stop|abort(?:ed)?"),
)
"""What counts as a verdict behind a label that announces one, and nowhere else."""
_SUBJECT = (
    r"(?:(?:that|i|we|this|it|they|the\s+(?:plan|patch|change|design|run|proposal|pr"
    r"|diff|experiment|stage|gate))\s+)*"
    r"(?:(?:is|are|should|must)\s+(?:hereby\s+)?(?!not))?"
)
_SIGNS = r"[\s>|✅👍🟢🚀❌⛔🛑🔴🚫👎⚠🟡🟠🔄\ufe0f*_-]*"
_FORMS: tuple[tuple[Mark, bool, re.Pattern[str]], ...] = tuple(
    (mark, labelled, re.compile(rf"(?i){_SIGNS}{'' if labelled else _SUBJECT}(?:{words})(?![\w'’-])"))
    for labelled, table in ((False, _PHRASES), (True, _LABELLED))
    for mark, words in table
)
_SHOUTED = re.compile(
    r"\W*(?:[A-Z][A-Z -]+|(?i:lgtm\b|ship\s+it|approve[ds]?|rejected?|no[\s-]go|looks\s+good"
    r"|no\s+blocking\s+\w+|no\s+issues\s+found|conditional\w*\s+\w+|request\w*\s+changes"
    r"|changes\s+\w+|do\s+not\s+\w+))"
)
"""Words that are a verdict without a label: words that rarely begin prose, and others in capitals."""
_PURPOSE = (
    r"(?:\s+(?:for|to)\s+(?:the\s+|this\s+|a\s+|full\s+|next\s+)*(?:merge|production"
    r"|launch|training|run|stage|pilot|scale)(?:\s+run|\s+stage)?(?:\s+only)?)?"
)
_WHAT = r"(?:\s+(?:this|it|(?:the|this)\s+(?:plan|patch|change|design|run|proposal|pr|diff|experiment|stage|gate)))?"
_ENDS = (
    rf"{_WHAT}{_PURPOSE}(?:[\s✅👍🟢🚀🎉*]*(?:$|[.!;,–—]|:(?!\s*(?:false|no|th|the)\b))|\s+[(]|\s-\s"
    r"|\s+(?:until|because|since|before|but|if(?!\s+you)|once|after|pending(?=\s+\w)|unless)\b)"
)
_REST = re.compile(rf"(?i){_ENDS}")
_REFUSED_REST = re.compile(rf"(?i){_ENDS}|\s+(?:in|for)\b")
"""How a sentence may continue after its phrase."""
_BINDS = re.compile(
    r"(?i)\b(?:but|if|once|only|after|pending|until|unless|provided|subject\s+to|conditional\w*"
    r"|must|need(?:s|ed)?\s+to|ha(?:s|ve)\s+to"
    r"|required?|before\s+(?:merge|push|launch|the|it|you)|first|fix|condition\w*|assuming"
    r"|at\s+most|safeguards?|without|as\s+long\s+as|so\s+long\s+as|contingent|precondition\w*"
    r"|prior\s+to|capp?e?d?|reservations?|obligations?|to\s+do|requires|stay|part\s+of\s+the"
    r"|strings?|then|below|restrictions?|caveats?"
    r"|open\s+points|got\s+to|ends\s+the|follow-?ups?|terms|to\s+be|criterion|ends|when|permitting|mandatory|above)\b"
)
_NOTHING = re.compile(
    r"(?i)\b(?:no|zero|none\s+of\s+the|not\s+any|without(?:\s+any)?)\s+(?:\w+\s+){0,2}?(?:blockers?"
    r"|issues?|findings?|concerns?|problems?"
    r"|changes?|conditions?|objections?|risks?|leaks?|regressions?|criticals?|defects?)\b(?:\s+(?:found"
    r"|needed|required))?"
    r"|\b(?:conditions?|blockers?|critical|findings?|issues)\s*(?:issues|findings)?\s*[:="
    r"|]\s*(?:none|0|n/?a)\b|reject(?:s|ed)?\s+the\s+null"
    r"|null(?:\s+hypothesis)?\s+is\s+rejected|nothing\s+(?:blocks|found|to\s+add|prevents)"
)
"""Phrases that deny a fault; their "no" and "blocker" raise no doubt."""
_DOUBT = re.compile(
    r"(?i)\b(?:not|never|no|none|nobody|cannot|neither|nor|hardly|instead|rather|however"
    r"|although|though|maybe|perhaps|guess|hope\w*|probably"
    r"|would|could|might|said|says?|claim\w*|was|were|or|versus|vs|example|template"
    r"|default|placeholder|draft|outdated|obsolete|withdr\w+"
    r"|retract\w*|supersed\w*|revok\w*|rescind\w*|kidding|joking|sarcas\w*|declin\w+"
    r"|refus\w+|denied|investigat\w+|else|options?"
    r"|alternatives?|struck|wrong|wish|nothing|correction|erratum|update[ds]?|mistake\w*"
    r"|disagree|cancel\w*|void|expire\w*|overrul\w*"
    r"|overrid\w*|edit|wait|reflection|forget|back|caution|crash\w*|fail\w*|leak\w*"
    r"|blocking|blocked|blockers?|critical|missing"
    r"|veto\w*|except|as\s+if|rubber|auto|parts?|issues|unapproved|disapprov\w+|reject\w*"
    r"|revis\w+|iterat\w+|(?-i:HOLD|STOP)|hold\s+the|unsure|borderline|confidence|mock"
    r"|simulat\w*"
    r"|translated|builder\S*|author|nicht|kein\w*|aber|pas|pero|jamais|minus|dreams?"
    r"|limits?|scope|lapses?|please|kill|owe|catch|merge\s+after"
    r"|hinges|restrict\w*|remember|expect\w*|covers|assumes|essential|waits?|responsib\w*"
    r"|light|principle|theory)\b|n't\b|\?|\.\.|…|/s\b|¤|\[ \]|stop!"
)
"""Words next to an approval that may take it back, name a fault or speak of something else."""
_UNDONE = re.compile(
    r"(?i)\b(?:supersed\w*|withdr[ae]w\w*|retract\w*|revok\w*|rescind\w*|overrul\w*"
    r"|obsolete|no\s+longer|scratch\s+that|for\s+the\s+record"
    r"|test\s+test|how\s+to|in\s+error|not\s+mine|dry\s+run|on\s+second\s+thought|changed\s+my\s+mind"
    r"|tak(?:e|ing)\s+(?:it|this|that)\s+back"
    r"|suggested\s+text|for\s+the\s+archive|history|transcript|traceback)\b"
)
"""What takes a verdict back, or says that it is none, even within a quote."""
_CUT_OFF = re.compile(
    r"(?:[,(\[{–—:-]|\b(?:and|or|the|a|an|of|to|with|because|for|but|that|if|should"
    r"|must|from))\s*$"
)
_CRITICAL = re.compile(
    r"(?i)\b(?:critical|blockers?|blocking|showstoppers?|must[\s-]fix)\b|\bP[01]\b|\bsev(?:erity)?[\s:-]*[01]\b"
)
_LABEL = re.compile(
    r"(?i)^[^\w¤(]*(?:\d+[.)]\s*)?(?:(?:final|overall|my|our|gate|review)\s+){0,2}(?:(?P<strong>decision"
    r"|verdict|approval|sign-?off|approved(?=\s*[:=])"
    r"|(?:go\s*/\s*no-?go)|ready\s+(?:to\s+(?:merge|proceed|ship)|for\s+\w+)(?=\s*[:?]))"
    r"|(?P<weak>recommendation|status|state|summary|result|overall|gate|outcome"
    r"|conclusion|assessment))(?:\s+status)?\s*(?:(?:[:=|?\t–—→]|->|=>|-\s|\bis\b(?:\s+that)?)[\s>="
    r"|]*(?P<value>.*?)[\s|]*)?$"
)
_TICKED = re.compile(r"^\W*?(?:\[[xX✓✔]\]|☑)\s*(?P<value>.+)$")
_PART = re.compile(
    r"(?i)^\W*(?:\d+[.)]\s*)?(?:option|variant|plan|alternative|approach|proposal|scenario"
    r"|question|point|item|reviewer|round|attempt|finding|row"
    r"|codex|gemini|claude|gpt\S*)\s*#?(?:\d+|[a-h])?\b[^:|]{0,60}[:|–—-]"
)
"""A label of one part of what was judged: a verdict behind it may speak of that part only."""
_CHOICE = re.compile(r"(?i)\b(?:no-go|go|yes|no|approve[ds]?|reject(?:ed)?|revise)\s*[/|]\s*[\w-]+")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[^a-z])")
_BAD, _GOOD = re.compile("[❌⛔🛑🔴🚫👎⚠🟡🟠]"), re.compile("[✅👍🟢]")


def read_verdict(words: Words) -> VerdictReading:
    """Return what a review decided, if it did."""
    own = [line for line in words.lines if line.text.strip()]
    if words.open_fence or own and _CUT_OFF.search(own[-1].text):
        return VerdictReading(None, "the text is cut off", own[-1].number if own else None)
    if undone := next((line for line in words.lines if _UNDONE.search(line.full)), None):
        return VerdictReading(None, "a verdict that was taken back or is none", undone.number)
    statements = list(_statements(words.lines))
    if not statements:
        return VerdictReading(None, "no verdict in a known form")
    line = statements[0].line
    marks = {statement.mark for statement in statements}
    if "unclear" in marks:
        unclear = next(statement for statement in statements if statement.mark == "unclear")
        return VerdictReading(None, "a sentence that is not clearly a verdict", unclear.line)
    approving = marks & {"approve", "approve_with_conditions"}
    if len(marks) > 1 and marks != approving:
        return VerdictReading(None, "statements that contradict each other", line)
    if any(_BAD.search(review_line.full) for review_line in words.lines) and approving:
        return VerdictReading(None, "a sign of danger next to an approval", line)
    if not approving:
        if late := next(
            (
                review_line
                for review_line in own
                if review_line.number > line and re.search((r"\bGO\b|\bLGTM\b|\b(?i:approved)\b"), review_line.text)
            ),
            None,
        ):
            return VerdictReading(None, "an approval behind a refusal", late.number)
        (verdict,) = marks
        return VerdictReading(verdict, "", line)  # pyright: ignore[reportArgumentType]
    return _approval(words.lines, statements)


def _approval(lines: list[ReviewLine], statements: list[Statement]) -> VerdictReading:
    """Return an approval, or why what stands next to it leaves it undetermined."""
    line, own = statements[0].line, {statement.line for statement in statements}
    if any(_TICKED.match(review_line.text) for review_line in lines if review_line.number in own):
        lines = [review_line for review_line in lines if "[ ]" not in review_line.full]
    binds = any(statement.binds or statement.mark != "approve" for statement in statements)
    for review_line in lines:
        text = _NOTHING.sub("", review_line.full)
        if binds or review_line.number in own or not text.strip():
            continue
        if _CRITICAL.search(text) and not _denies(review_line, lines):
            return VerdictReading(None, "a critical finding next to an approval", review_line.number)
    for review_line in lines:
        text = _NOTHING.sub("", review_line.text)
        binds = binds or re.match(r"(?i)\W*conditions?:(?!\s*none)", review_line.full) is not None
        if (
            review_line.number in own
            or not text.strip()
            or re.match(r"(?i)\W*(?:conditions?\W*)?(?:none|n/?a|nothing)\W*$", review_line.full)
        ):
            continue
        if review_line.level and _CRITICAL.search(text):
            continue
        if re.match(r"(?i)\W*(?:required\s+)?conditions?\b|\W*but\b|.*\bmust\s+be\s+fixed\s+before\b", text):
            binds = True
        elif not binds and (_DOUBT.search(text) or _BINDS.search(text)):
            return VerdictReading(None, "something else in the text may speak against it", review_line.number)
    return VerdictReading("approve_with_conditions" if binds else "approve", "", line)


def _denies(line: ReviewLine, lines: list[ReviewLine]) -> bool:
    """Return whether a line that names critical findings has none: "Critical: 0", or "None." below it."""
    if re.search(r"(?i)[:|=]\s*(?:none|0|n/?a|-)\s*\|?\s*$", line.full) or re.search(
        r"(?i)\b(?:no|zero|0)\b", line.full
    ):
        return True
    below = next(
        (review_line.full for review_line in lines if review_line.number > line.number and review_line.full.strip()), ""
    )
    return re.match(r"(?i)\W*(?:none|n/?a|nothing|no\s+\w+)\b[^,;]*$", below) is not None


def _statements(lines: list[ReviewLine]) -> Iterator[Statement]:
    """Yield the sentences that state a verdict, or may."""
    first = True
    ticked = [line for line in lines if _TICKED.match(line.text)]
    for place, line in enumerate(lines):
        if not line.text.strip() or (line.item and re.match(r"\W*\[ \]|\W*¤", line.full)):
            continue
        label, box = _LABEL.match(line.text), _TICKED.match(line.text)
        if box:
            yield (
                Statement(line.number, "unclear")
                if len(ticked) > 1
                else _read_statement(line.number, box["value"], labelled=True)
            )
        elif label and label["value"]:
            yield from _behind(line, label)
        elif label and (line.level or re.fullmatch(r"[=-]+", lines[min(place + 1, len(lines) - 1)].full)):
            below = next((review_line for review_line in lines[place + 1 :] if review_line.text.strip()), None)
            if below is not None and below.level in (0, _BOLD) and not _LABEL.match(below.text):
                shouted = re.match(r"\W*[A-Z]{2,}\b", below.text) is not None
                stated = _read_statement(below.number, below.text, labelled=shouted or bool(label["strong"]))
                if stated.mark != "unclear" or label["strong"]:
                    yield stated
        elif first and not _PART.match(line.text):
            title = heading(line.full)[1] or line.text
            sentence = _SENTENCE.split(title)[0]
            if _SHOUTED.match(re.sub(r"^[^\w¤]+", "", sentence)):
                stated = _read_statement(line.number, title, labelled=False)
                if stated.mark != "unclear":
                    yield stated
        first = first and (line.level > 0 or re.match(r"\W*[\w -]{1,20}:\s", line.text) is not None)


def _behind(line: ReviewLine, label: re.Match[str]) -> Iterator[Statement]:
    """Yield what a label announces; a weak one counts only with a phrase that is a verdict anywhere."""
    stated = _read_statement(
        line.number,
        label["value"],
        labelled=bool(label["strong"] or label["weak"].lower() in ("recommendation", "status")),
    )
    if stated.mark != "unclear" or label["strong"]:
        yield stated


def _read_statement(number: int, text: str, *, labelled: bool) -> Statement:
    """Return what the first sentence of a text decides: unclear unless a phrase and an allowed end are all of it."""
    text = _NOTHING.sub(lambda denied: denied[0] if denied.start() == 0 else "", text.strip())
    sentence = _SENTENCE.split(text)[0]
    if _CHOICE.search(sentence):
        return Statement(number, "unclear")
    for mark, needs_label, form in _FORMS:
        phrase = form.match(sentence) if labelled or not needs_label else None
        rest = sentence[phrase.end() :] if phrase else ""
        if phrase is None or not (_REST if mark.startswith("approve") else _REFUSED_REST).match(rest):
            continue
        return Statement(number, *_weigh_mark(mark, phrase[0], rest, text))
    return Statement(number, "unclear")


def _weigh_mark(mark: Mark, phrase: str, rest: str, text: str) -> tuple[Mark, bool]:
    """Return a mark as what surrounds it leaves it, and whether it binds."""
    if mark in ("approve", "approve_with_conditions"):
        if _BAD.search(text):
            return "unclear", False
        if re.search(
            r"(?i)\b(?:i\s+only|auto|parts?|rubber|title|not\s+yet|leaks?|crash\w*|broken|wrong|invalid)\b", rest
        ):
            return "unclear", False
        binds = mark != "approve" or _BINDS.search(rest) is not None
        following = _NOTHING.sub("", text[text.find(phrase) + len(phrase) :])
        if not binds and (_DOUBT.search(following) or _BINDS.search(following)):
            binds = _BINDS.search(following) is not None and not _DOUBT.search(following)
            return ("approve", True) if binds else ("unclear", False)
        retraction = re.search(r"(?i)\b(?:retract\w*|withdr\w+|revok\w*|supersed\w*|kidding|joking)\b|\?", following)
        return ("unclear", False) if retraction else (mark, binds)
    if re.search(r"\bGO\b|\b[Aa]pproved?\b|\blgtm\b", rest) or _GOOD.search(text):
        return "unclear", False
    if re.search(r"(?i)\?|\b(?:retract\w*|withdr\w+|supersed\w*|no\s+longer|or)\b|¤", rest):
        return "unclear", False
    return mark, False
