"""The reviewer's words in blocks: a paragraph, a point of a list, the value of a label."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Literal, NamedTuple

from reviews.legacy.layout import Page
from reviews.legacy.vocabulary import head_of
from reviews.legacy.zones import SPEAKER, heading

Label = Literal["strong", "weak", ""]

_BEFORE = (
    r"(?i)^[\s|]*(?:[-*+\u2022]\s+|\d+[.)]\s+)?(?:#{1,6}\s*)?(?:\d+[.)]\s+)?(?:[^\w\s#|(\[{<+\u00a4\"'`~-]{1,3}\s*)?"
    r"(?:(?:final|overall|gate|my|our|review(?:er)?(?:'s)?|autonomous|scaling|launch|stage\s*\w{1,2}"
    r"|phase\s*\w{1,2}|pilot|sft|dpo|the)\s+){0,3}"
)
_STRONG = (
    r"decision|verdict|approvals?|approved|approve|go\s*/\s*no-?go(?:\s*/\s*\w+)?(?:\s+(?:recommendation"
    r"|decision|call|verdict))?|sign-?off|(?:approval|decision|verdict|sign-?off)\s+status|ready\s+(?:for"
    r"|to)\s+(?:the\s+)?(?:\w+\s+)?\w+|ruling|determination|disposition"
    r"|review\s+(?:result|status)|gate\s+(?:result|status)|vote"
)
_WEAK = (
    r"recommendations?|outcome|conclusion|result|status|summary|assessment|bottom\s+line|overall|judge?ment|opinion"
    r"|tl;?dr|final\s+answer|answer"
)
_OTHERS = (
    r"(?![^:]{0,60}\b(?:builder|author|agent|other|earlier|previous|prior|last|their|his|her|your|first|second"
    r"|round|options?|variants?"
    r"|alternatives?|choose|one\s+of|pick|select|or)\b)"
)
_ABOUT = rf"(?:\s*\({_OTHERS}(?![^)]*/)[^()]{{1,40}}\)|\s+(?:for|on|regarding|about|of)\s+{_OTHERS}[^:=|?]{{1,60}}?)?"
_LABEL = re.compile(
    _BEFORE + rf"(?:(?P<strong>{_STRONG})|(?P<weak>{_WEAK})){_ABOUT}"
    r"\s*(?:[:=|]|\s[-\u2013\u2014]+\s|->|\u2192)\s*(?P<value>.*)$"
)
_LABEL_ALONE = re.compile(
    _BEFORE + rf"(?:(?P<strong>{_STRONG})|(?P<weak>{_WEAK})){_ABOUT}(?:\s*[:=]?\s+(?P<value>\S.{{0,40}}))?[^\w?]*$"
)
# A line that is nothing but the label.
_BARE_LABEL = re.compile(r"(?i)^\s*(?:final\s+|overall\s+|gate\s+)?(?:decision|verdict|approval|recommendation)\s*$")
# "**Verdict** APPROVED": the emphasis stands for the colon.
_BOLD_LABEL = re.compile(
    rf"(?i)^\s*(?:[-*+]\s+)?\*\*(?P<label>(?:final\s+|overall\s+)?(?:{_STRONG}|{_WEAK}))\*\*\s+(?=[^\s:=|-])"
)
_CHECKED = re.compile(
    r"^\s*(?:[-*+]\s+)?(?:\[[xX\u2713\u2714]\]|\u2611|\u2705(?=\s*(?:approve|reject|go|no-go)\s*$))\s*(?P<value>.+)$",
    re.I,
)
_UNTICKED = re.compile(r"(?:\[ ?\]|\u2610|\u25ef|\u25cb)[^\[\u2610\u2611\u25ef\u25cb\u2022|]*")
_TICK = re.compile(r"\[[xX\u2713\u2714]\]|\u2611")
OPTION = re.compile(
    r"(?i)^\W*(?:\d+[.)]\s*)?(?:option|variant|plan|alternative|approach|choice|candidate|proposal|route"
    r"|scenario|question|answer|point|item"
    r"|reviewer|round|attempt|finding|row|[qa])\s*#?\d*\w?\b\W{0,3}(?:[^:|]{0,60}?)(?P<sep>[:|\u2013\u2014(=]"
    r"|\u2192|-(?=\s))\s*(?P<value>.*)$"
)
_OPTION_HEADING = re.compile(
    r"(?i)^\W*(?:\d+[.)]\s*)?(?:option|variant|plan|alternative|approach|choice|candidate|proposal|route"
    r"|scenario|question|round|attempt"
    r"|[qa])\s*#?(?:\d+|[a-z])\b"
)
_SCOPED = re.compile(
    r"^\s*(?:[-*+\u2022]\s+|\d+[.)]\s+|#+\s*)?(?P<scope>[^:|=\u2192]{1,100}?)\s*(?::|\||=|\u2192|->"
    r"|\s[-\u2013\u2014]+\s)\s*(?P<value>\S.*)$"
)
_ITEM = re.compile(r"^\s*(?:[-*+\u2022]\s|\d+[.)]\s|\|)")
_MID_SENTENCE = re.compile(
    r"(?i)(?:\b(?:with|the|is|of|says?|reads?|line|answer|as|to|a|an|form|like|and|or|that|word|write|said"
    r"|either|not|no|never|cannot|be|for|was|called))$"
)
_WRAPPED = 60
_A_PHRASE = 3
_ANNOUNCES = re.compile(
    r"(?i)\b(?:my|our)\b|^\W*(?:i|we)\b|^\W*here(?:'s|\s+is|\s+are)\b|\b(?:verdict|decision|recommendation"
    r"|conclusion|summary|result)\W*:$"
    r"|\b(?:verdict|decision)\s+(?:is|follows)\b"
)
_OTHERS_WORDS = re.compile(
    r"(?i)\b(?:builder|author|agent|draft|old|former|session|previous|prior|last|earlier|archive|hope|suggest\w*"
    r"|expect\w*|template|example|format"
    r"|propos\w*|would|want|request\w*|other|their|his|her|your)\b"
)
_FEW_WORDS = 8


class Block(NamedTuple):
    """Lines that belong together; ``lines`` holds pairs of their place on the page and their words."""

    label: Label
    scope: str
    """What it speaks of, when that is one option, one question, one round."""
    form: Literal["label", "item", "heading", "text"]
    lines: list[tuple[int, str]]
    part: str = ""
    """What a line names before it says something of it: "Option A: GO"."""
    value: str = ""
    """What it says of that."""
    introduced: bool = False
    """The line above ends in a colon and is not the reviewer's announcement: these may be another's words."""


class _Shape(NamedTuple):
    text: str
    label: Label
    value: str
    scope: str
    form: Literal["label", "item", "heading", "text"]
    starts: bool
    option: bool = False


def blocks_of(page: Page) -> Iterator[Block]:
    """Cut the reviewer's words into blocks; a sentence that runs over a line end stays whole."""
    block: Block | None = None
    pending: Label = ""
    scope, depth = "", 0
    above, before = "", ""
    introduced = False
    for at, (line, zone) in enumerate(zip(page.lines, page.zones, strict=True)):
        if zone != "review" or not line.strip():
            if block:
                yield block._replace(introduced=introduced)
            block, above = None, ""
            before = line if line.strip() else before
            continue
        head = heading(line)
        if head and head.level <= (depth or 9):
            named = _OPTION_HEADING.match(head.title)
            scope, depth = (head.title, head.level) if named else ("", 0)
        shape = _shape(line, above)
        above = line
        told, before = _introduces(before), line
        if not shape.starts and block is not None:
            block.lines.append((at, shape.text))
            continue
        if block:
            yield block._replace(introduced=introduced)
        block, introduced = None, told
        if shape.label and not re.search(r"[^\W_]|[^\x00-\x7f]", shape.value):
            pending = shape.label
            continue
        if shape.label:
            block = Block(shape.label, scope or shape.scope, "label", [(at, shape.value)])
        else:
            option = shape.scope if shape.option else ""
            block = Block(
                "" if option else pending, scope or option, shape.form, [(at, shape.text)], shape.scope, shape.value
            )
        pending = ""
    if block:
        yield block._replace(introduced=introduced)


def tidy(line: str) -> str:
    """Return a line without emphasis and underscores, and with one kind of apostrophe and hyphen."""
    bare = re.sub(r"(?<=[A-Za-z])_(?=[A-Za-z])", " ", re.sub(r"\*+|(?<!\w)_+(?=\w)|(?<=\w)_+(?!\w)", "", line))
    bare = unicodedata.normalize("NFKC", bare).replace("\u2019", "'").replace("\u2010", "-").replace("\u2011", "-")
    return re.sub(r"(?i)\b(not|non|un|dis)-(?=(?:approv|accept))", r"not ", bare)


def _shape(line: str, above: str) -> _Shape:
    bare = tidy(_BOLD_LABEL.sub(r"\g<label>: ", line))
    head = heading(line)
    spoken = SPEAKER.match(bare)
    if spoken and spoken["review"] and not _named(spoken):
        bare, head = spoken["rest"], None
        if not bare.strip():
            return _Shape(bare, "", "", "", "text", True)
    if (checked := _CHECKED.match(bare)) and head_of(checked["value"], "strong"):
        return _Shape(bare, "strong", _UNTICKED.sub(" ", checked["value"]), "", "label", True)
    if _in_sentence(above) and not spoken:
        return _Shape(bare, "", "", "", "text", False)
    found = _LABEL.match(bare) or (
        _label_alone(bare) if head or bare.rstrip().endswith(":") or _BARE_LABEL.match(bare) else None
    )
    if found and not (_approved(found) and found["value"] and head_of(found["value"], "strong") is None):
        value = _ticked((found["value"] or "").strip(" |"))
        quoted = re.fullmatch(r"([`\"'\u201c])([^`\"\u201c\u201d]{1,60})[`\"'\u201d](\W*)", value.strip())
        value = quoted[2] + quoted[3] if quoted else value
        return _Shape(bare, "strong" if found["strong"] else "weak", value, "", "label", True)
    if option := OPTION.match(bare):
        return _Shape(bare, "", option["value"], bare[: option.start("sep")].strip(" -*#|"), "item", True, True)
    item = _ITEM.match(line) is not None
    scoped = _SCOPED.match(bare)
    scope = scoped["scope"].strip() if scoped and (head or item or len(scoped["scope"].split()) <= 8) else ""
    if scope and head_of(scope, "alone"):
        # "MODIFY - cap the share": what stands before the dash is the verdict itself.
        scope = ""
    form = "heading" if head else "item" if item else "text"
    return _Shape(
        bare,
        "",
        scoped["value"] if scoped and scope else "",
        scope,
        form,
        head is not None or item or spoken is not None or bool(scope),
    )


def _named(spoken: re.Match[str]) -> bool:
    """Say whether a line gives the verdict of somebody by name ("Codex: APPROVED"): others may have another one."""
    by_name = re.match(r"(?i)codex|gemini|gpt|reviewer\s+\w", spoken["review"]) is not None
    return by_name and 0 < len(spoken["rest"].split()) <= _FEW_WORDS


def _ticked(value: str) -> str:
    """Return what is ticked of "Yes [ ] No [x]"; a choice without a tick is none."""
    if _TICK.search(value) is None and _UNTICKED.search(value):
        return ""
    return _TICK.sub(" ", _UNTICKED.sub(" ", value))


def _label_alone(bare: str) -> re.Match[str] | None:
    """Return a heading that is a label: "## Decision", "## Approval Yes"; "## Decision rule" is none."""
    bare = re.sub(r"[*#=]+", "", bare)
    found = _LABEL_ALONE.match(bare)
    if found is None or bare.rstrip().endswith(":"):
        return found
    value = (found["value"] or "").strip()
    if not value:
        return None if _approved(found) else found
    return found if head_of(value, "strong") else None


def _approved(found: re.Match[str]) -> bool:
    """Say whether a label is itself a verdict: "Approved: yes", but also "Approved: the loader only"."""
    return (found["strong"] or "").lower() in ("approved", "approve")


def _introduces(line: str) -> bool:
    """Say whether a line of prose announces words that need not be the reviewer's: "Suggested text:"."""
    bare = tidy(line).rstrip()
    if not bare.endswith(":") or heading(line) or _ITEM.match(line) or len(bare.split()) < _A_PHRASE:
        return False
    return _ANNOUNCES.search(bare) is None or _OTHERS_WORDS.search(bare) is not None


def _in_sentence(above: str) -> bool:
    """Say whether the line above ends within a sentence, so that the next is no line of its own."""
    if not above.strip() or heading(above):
        return False
    end = above.rstrip(" *_")
    pair = re.match(r"^\W*[\w /-]{1,40}:\s(?P<value>.*)$", end)
    if _MID_SENTENCE.search(end[-_WRAPPED:]) and not (pair and len(pair["value"].split()) < 3):
        return True
    if pair or _ITEM.match(above):
        return False
    return end[-1:].isalnum() and end[-1:].islower() and len(end) >= _WRAPPED
