"""Are the texts of a design whole, and are training and held-out prompts written alike?

Damage is what no author writes: characters of a wrong encoding, characters that no one sees, marks of a chat template,
everything twice. What an author may mean (HTML, names of roles, a place to fill) only warns.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

from reviews.checks.definition import CheckLimit, CheckOutcome, join_names
from reviews.evidence.measured_value import ratio
from specs.session.thresholds import Thresholds
from specs.stages.base.artifacts import Item
from specs.system.exact import holds

SOURCE = "prompts that hold 'donâ€™t' or '<|im_end|>': a model learns them, or is asked otherwise than a user asks"
ALIKE_SOURCE = "a model that is trained on prompts which all end with 'Answer:', and asked without it"
DAMAGED = (CheckLimit("<=", "thresholds.damaged_texts"),)
LEAST_TEXTS = 20
"""Fewer training or held-out prompts are alike by the choice of their subjects."""
MOST, FEW = 0.9, 0.1
"""Fractions of two sets of prompts: what most of one have and few of the other tells them apart."""
_LONGEST_EDGE = 12
_LEAST_HALF = 4
"""Words. Fewer are a song or a chant."""
_HIDDEN = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069]|(?<=\w)[\u00ad\u200b\u2060\ufeff](?=\w)"
)
"""Control characters, changes of the direction of writing, and what is not seen inside of a word. The joiners of some
scripts are left out."""
_CHAT = re.compile(r"<\|\w+\|>|\[/?INST\]|<</?SYS>>|<(?:start_of_turn|end_of_turn)>")
UNFILLED = re.compile(r"\{[a-z_]+\}|\[TODO\]|\bTODO\b")
"""A template's place that no one filled. Code has such places too."""
_LATER = "[\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]"
_BYTES = re.compile(f"(?:[\u00c2-\u00df]{_LATER}|[\u00e0-\u00ef]{_LATER}{{2}}|[\u00f0-\u00f4]{_LATER}{{3}})+")
"""What the first and the later bytes of UTF-8 are in Windows-1252."""
_LATIN = re.compile("[\u00a0-\u017f\u2010-\u2044\u20ac\u2122\ufffd\U0001f000-\U0001ffff]")
_MEANT = (
    ("an HTML character reference", re.compile(r"&(?:amp|lt|gt|quot|apos|nbsp|#\d{1,6}|#x[0-9a-fA-F]{1,6});")),
    ("an HTML tag", re.compile(r"<(?:br|hr)\s*/?>|</(?:a|b|div|em|font|i|li|p|span|strong|table|td|tr|u|ul)>")),
    ("the name of a role", re.compile(r"^[ \t]*(?:user|human|assistant|system)[ \t]*:", re.IGNORECASE | re.MULTILINE)),
    ("a place to fill", UNFILLED),
)


def find_damage(text: str) -> str:
    """Return what no author writes and a text holds: a few words for people; empty for a whole text."""
    if chat := _CHAT.search(text):
        return f"holds {chat[0]}, a mark of a chat template"
    if hidden := _HIDDEN.search(text):
        return f"holds U+{ord(hidden[0]):04X}, which is not seen"
    words = text.split()
    half = len(words) // 2
    if half >= _LEAST_HALF and words[:half] == words[half:]:
        return "says everything twice"
    if text.isascii():
        return ""
    if "\ufffd" in text:
        return "holds U+FFFD: a character was lost"
    misread = _find_misread(text)
    return f"holds '{misread[0]}' for '{misread[1]}': UTF-8 read in another encoding" if misread else ""


def _find_misread(text: str) -> tuple[str, str] | None:
    """Return characters that are the bytes of others, read as Windows-1252 or Latin-1, with those: ``Ã©`` and ``é``.

    A single one counts as a letter or mark of Latin script or an emoji: "é…”" ends French quotations.
    """
    for match in _BYTES.finditer(text):
        try:
            whole = bytes(map(_byte_of, match[0])).decode("utf-8")
        except UnicodeError:
            continue
        if len(whole) > 1 or _LATIN.match(whole):
            return match[0], whole
    return None


def _byte_of(character: str) -> int:
    return ord(character) if ord(character) < 256 else character.encode("cp1252")[0]


def _find_oddity(text: str) -> str:
    """Return what a text holds that its author may have meant; empty for plain texts."""
    for name, pattern in _MEANT:
        if match := pattern.search(text):
            return f"holds {name} ({match[0].strip()})"
    return ""


def whole_texts(
    training: Sequence[tuple[str, str]], heldout: Sequence[tuple[str, str]], thresholds: Thresholds
) -> CheckOutcome:
    """Look for damage in the texts of both splits, given with their places.

    It fails where damage is in more than the registered share of either; less of it, and what may be meant, warns.
    """
    damaged, odd, shares = list[dict[str, Any]](), list[dict[str, Any]](), list[Fraction]()
    for side, texts in (("heldout", heldout), ("train", training)):
        count = 0
        for place, text in texts:
            if why := find_damage(text):
                count += 1
                damaged.append({side: place, "fault": why, "text": text})
            elif why := _find_oddity(text):
                odd.append({side: place, "fault": why, "text": text})
        shares.append(ratio(count, len(texts)))
    total, most = len(training) + len(heldout), max(shares)
    if not damaged and not odd:
        detail = f"{total} texts hold no damaged character, mark of a chat template or HTML"
        return CheckOutcome("PASS", detail, float(most))
    status = "WARN" if holds(most, "<=", thresholds.damaged_texts) else "FAIL"
    parts = [f"{len(damaged)} of {total} texts are damaged: {_name_rows(damaged)}"] if damaged else []
    parts += [f"{len(odd)} of {total} texts hold what may not be meant: {_name_rows(odd)}"] if odd else []
    return CheckOutcome(status, "; ".join(parts), float(most), (*damaged, *odd), repairable=False)


def _name_rows(rows: Sequence[dict[str, Any]]) -> str:
    return join_names(f"{row.get('heldout') or row.get('train')} {row['fault']}" for row in rows)


def written_alike(training: Sequence[Item], heldout: Sequence[Item]) -> CheckOutcome:
    """Compare the kinds of the prompts of both splits, and how they begin, end and are capitalised.

    A habit that nearly all prompts of a split have and nearly none of the other is learned with the task, and missing
    where the model is asked.
    """
    if min(len(training), len(heldout)) < LEAST_TEXTS:
        return CheckOutcome("NOT_APPLICABLE", f"fewer than {LEAST_TEXTS} training or held-out prompts")
    sides = (("training", training, heldout), ("held-out", heldout, training))
    wrong = [
        f"nearly all {name} prompts {habit}, and nearly none of the others do"
        for name, own, others in sides
        for habit in _habits([item.prompt for item in own], [item.prompt for item in others])
    ]
    kinds, trained = ({item.kind for item in items} for items in (heldout, training))
    if kinds & trained and (unknown := kinds - trained):
        names = join_names(sorted(unknown))
        wrong.append(f"no training prompt is of the held-out kinds {names}: a gain there is transfer")
    if wrong:
        return CheckOutcome("WARN", f"the splits differ: {'; '.join(wrong)}", float(len(wrong)))
    return CheckOutcome("PASS", "training and held-out prompts begin, end and are capitalised alike", 0.0)


def _habits(own: Sequence[str], others: Sequence[str]) -> Iterable[str]:
    for where, verb in ((1, "begin"), (-1, "end")):
        if edge := _common_edge(own, others, where):
            yield f"{verb} with '{edge}'"
    if _share(own, str.isupper) >= MOST and _share(others, str.isupper) <= FEW:
        yield "are in capitals"
    if _share(own, str.islower) >= MOST and _share(others, str.islower) <= FEW:
        yield "are in small letters"


def _share(texts: Sequence[str], is_so: Callable[[str], bool]) -> float:
    return sum(map(is_so, texts)) / len(texts)


def _common_edge(own: Sequence[str], others: Sequence[str], where: int) -> str:
    """Return the fewest first (``where`` 1) or last (-1) words that most of a split have and few of the other."""
    edges, other_edges = ([_edge(text, where) for text in texts] for texts in (own, others))
    for size in range(1, _LONGEST_EDGE + 1):
        # A text of no more words than that is its own edge.
        counts = Counter(edge[:size] for edge in edges if len(edge) > size)
        words, count = counts.most_common(1)[0] if counts else ((), 0)
        if count < MOST * len(own):
            break
        if sum(edge[:size] == words for edge in other_edges) <= FEW * len(others):
            return " ".join(words[::where])
    return ""


def _edge(text: str, where: int) -> tuple[str, ...]:
    """Return the first words of a text, or the last ones in turn."""
    words = text.split(maxsplit=_LONGEST_EDGE) if where == 1 else text.rsplit(maxsplit=_LONGEST_EDGE)[::-1]
    return tuple(words[: _LONGEST_EDGE + 1])
