"""Takes secrets out of texts before they are kept, sent, printed or shown.

Masked are values that this process knows (variables named like secrets, what :func:`know` was given) and the forms
of :mod:`specs.system.secret_forms`, also where invisible characters, escape sequences, line ends or escapes of JSON,
URLs and HTML split them; known values also in base64 and hexadecimal. Not found: unlisted forms, passwords that look
like words and follow no word such as *password*, and what was encrypted, compressed or spelled out.
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote, urlsplit

from specs.system.secret_forms import HINTED, SecretForm
from specs.system.strict_json import each_once

if TYPE_CHECKING:
    # Every command loads this module to print; pydantic takes longer than `peergate --help` may.
    from specs.system.digests import Contract

_MAY_BE_SPLIT = tuple((hint, form) for hint, form in HINTED if form.may_be_split)
SHORTEST_VALUE = 8
"""Shorter values are words and settings; masking them would garble the text."""
_NAMED_LIKE_A_SECRET = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|PWD|CREDENTIAL|BEARER|DATABASE_URL|(?:^|_)(?:DSN|AUTH)(?:_|$)"
    r"|^PEERGATE_(?:DATABASE|NOTIFY|TRACKERS|PLACE)",
    re.IGNORECASE,
)
"""Peergate's own variables that may hold a password in an address; the others are places and settings."""
_NAMED_LIKE_A_PLACE = re.compile(r"(?:^|_)(?:PATH|FILE|DIR|FOLDER|CACHE|PYTHON|ROOT|HOME|SOCK|PLACE)$", re.IGNORECASE)
_A_PASSWORD = re.compile(r"PASSW|PASSPHRASE|PWD", re.IGNORECASE)
_SETTING = re.compile(r"[a-z]{1,19}|[A-Z]{1,19}|[A-Z]?[a-z]{1,18}|[0-9.]+|(?:[A-Za-z]+-)+key", re.ASCII)
"""One word, a number, or the placeholder of a key that is not needed (``no-key``)."""

_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f"
)
_HIDING = r"%\\&\x1b" + _INVISIBLE
_DISGUISE = (
    r"(?:(?<=\\)\\*(?:(?:u00|x)(?:[01][0-9A-Fa-f]|ad)|u(?:034f|061c|200[b-f]|202[a-e]|206[0-9a-f]|fe0[0-9a-f]|feff))"
    r"(?:(?<=1[bB])\[[0-9;]*[A-Za-z])?"
    r"|(?<=%)(?P<percent>[2-7][0-9A-Fa-f])|(?<=\\)\\*(?:x|u00|u\{|U000000)(?P<hex>[2-7][0-9A-Fa-f])\}?"
    r"|(?<=\\)\\*(?P<slash>[/\"'])|(?<=\\)(?P<backslash>\\)\\*"
    r"|(?<=&)#(?:x(?P<entity>[2-7][0-9A-Fa-f])|(?P<decimal>[1-9][0-9]{1,2}));"
    r"|(?<=\x1b)(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[ -/]*[0-~])?|(?<=[" + _INVISIBLE + r"])"
)
# What a pattern begins with decides how fast it is: one set of letters, and only then what follows each of them.
_HIDDEN = re.compile(rf"[{_HIDING}]{_DISGUISE})")
_SPLIT = re.compile(
    rf"[{_HIDING}\r\n\u2028\u2029](?:(?<=[\r\n\u2028\u2029])\s*|(?<=\\)\\*[nr](?:\\+[nrt]|[ \t])*|{_DISGUISE}))"
)


_CONTINUED = re.compile(r"[A-Za-z].*?[0-9]|[0-9].*?[A-Za-z]", re.DOTALL)


class MaskedText(NamedTuple):
    """A text without its secrets, and how many were taken out."""

    text: str
    secrets: int


class _Span(NamedTuple):
    start: int
    end: int
    mark: str


_known: dict[str, str] = {}


def know(name: str, value: str) -> None:
    """Have a value masked from now on in this process, whatever it looks like, if it is long enough."""
    if len(value.strip()) >= SHORTEST_VALUE:
        _known[value.strip()] = name


def current() -> Masker:
    """Return the masker of this process: of its environment and of what it was given to know."""
    return masker_of(os.environ)


def masker_of(environ: Mapping[str, str]) -> Masker:
    """Return the masker of this process with another environment."""
    # Every append asks: only the values that count are read, each is decoded anew.
    values = tuple((name, environ[name]) for name in environ if _may_name_a_secret(name))
    return _make_masker(values, tuple(_known.items()))


def forms_only() -> Masker:
    """Return a masker that knows no values, so that an audit on another machine masks the same."""
    return _make_masker((), ())


@lru_cache(maxsize=1024)
def _may_name_a_secret(name: str) -> bool:
    return _NAMED_LIKE_A_SECRET.search(name) is not None


@lru_cache(maxsize=8)
def _make_masker(environ: tuple[tuple[str, str], ...], known: tuple[tuple[str, str], ...]) -> Masker:
    return Masker(dict(environ), dict(known))


class Masker:
    """Masks the secrets of one environment, given values, and everything in the form of a secret."""

    def __init__(self, environ: Mapping[str, str], known: Mapping[str, str] | None = None) -> None:
        """Look up the values of variables named like secrets; ``known`` are further values with names for marks."""
        reasons = dict(known or {})
        for name, value in sorted(environ.items()):
            reasons |= dict.fromkeys(_secrets_in(name, value.strip()), name)
        self._values = {spelled: name for value, name in reasons.items() for spelled in _spellings(value)}

    def mask(self, text: str) -> MaskedText:
        """Replace every secret by a mark; the number of lines stays as it was."""
        spans = list(self._spans(text))
        for start, end, mark in reversed(spans):
            text = f"{text[:start]}[masked: {mark}]{chr(10) * text.count(chr(10), start, end)}{text[end:]}"
        return MaskedText(text, len(spans))

    def places(self, text: str) -> list[tuple[int, str]]:
        """Return where secrets begin in a text, each with what it is."""
        return [(span.start, span.mark) for span in self._spans(text)]

    def text(self, text: str) -> str:
        """Return a text without its secrets."""
        return self.mask(text).text

    def value(self, value: Any) -> Any:
        """Return a JSON value whose strings, names of fields included, are without their secrets."""
        return value if self._is_clean(json.dumps(value, ensure_ascii=False)) else self._map(value)

    def json(self, text: str) -> str:
        """Return JSON with every string in it masked, the same text where nothing is; what is not JSON, as a text."""
        return text if self._is_clean(text) else map_json(text, self.text, self._map)

    def _is_clean(self, text: str) -> bool:
        """Return whether nothing in a whole JSON text has to be masked; False where escapes may hide it."""
        return "\\u" not in text and _has_no_form(text) and not (self._values and self._spans(text, of_forms=False))

    def _map(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self.text(name): self._field(name, element) for name, element in value.items()}
        return (
            [self._map(element) for element in value]
            if isinstance(value, (list, tuple))
            else map_strings(value, self.text)
        )

    def _field(self, name: str, value: Any) -> Any:
        """Mask a field whose name may say that its value is a secret."""
        if isinstance(value, str) and _NAMED_LIKE_A_SECRET.search(name):
            before = f'{name}: "'
            masked = self.text(f'{before}{value}"')
            return masked[len(before) : -1] if masked.startswith(before) and masked.endswith('"') else self.text(value)
        return self._map(value)

    def data(self, data: bytes) -> bytes:
        """Return the bytes of a text or of JSON without its secrets, the same bytes where there are none."""
        text = data.decode("utf-8", "surrogateescape")
        masked = self.json(text)
        return data if masked == text else masked.encode("utf-8", "surrogateescape")

    def known_in(self, data: bytes) -> str | None:
        """Return the name of a known value in these bytes, whole or encoded, or None; such evidence is refused."""
        return next((name for value, name in self._values.items() if value.encode() in data), None)

    def _spans(self, text: str, *, of_forms: bool = True) -> list[_Span]:
        """Return what is masked, in order and without overlaps; only known values without ``of_forms``."""
        if len(text) < SHORTEST_VALUE:
            return []
        matching_spans = _join_spans(self._find_secrets(text, HINTED if of_forms else ()))
        for hidden, hinted in ((_HIDDEN, HINTED), (_SPLIT, _MAY_BE_SPLIT)):
            bare = hidden.sub(_read, text)
            if bare != text and (spans := list(self._find_secrets(bare, hinted if of_forms else ()))):
                more = _in_source(text, hidden, spans)
                matching_spans = _join_spans(
                    [*matching_spans, *(span for span in more if _adds(text, span, matching_spans))]
                )
        return matching_spans

    def _find_secrets(self, text: str, hinted: Iterable[tuple[str, SecretForm]]) -> Iterator[_Span]:
        for value, name in self._values.items():
            start = text.find(value)
            while start >= 0:
                yield _Span(start, start + len(value), name)
                start = text.find(value, start + len(value))
        lower = text.lower()
        if len(lower) != len(text):
            # Some letters become two in lower case.
            lower = "".join(
                current_text.lower() if len(current_text.lower()) == 1 else current_text for current_text in text
            )
        for hint, form in hinted:
            if hint in lower:
                for start, end in form.spans(text, lower, hint):
                    yield _Span(start, end, form.mark)


@lru_cache(maxsize=4)
def _has_no_form(text: str) -> bool:
    """Return whether nothing in a text has the form of a secret; a gate asks as it makes a text and as it keeps it."""
    return not forms_only()._spans(text)  # pyright: ignore[reportPrivateUsage]


def _in_source(text: str, hidden: re.Pattern[str], spans: Iterable[_Span]) -> list[_Span]:
    """Return spans of a text without what hides in it as spans of the text itself."""
    # Of each piece: where it begins without and with what hides, and whether it is letter for letter the same.
    pieces: list[tuple[int, int, bool]] = []
    done = length = 0
    for match in hidden.finditer(text):
        for size, start, same in ((match.start() - done, done, True), (len(_read(match)), match.start(), False)):
            if size:
                pieces.append((length, start, same))
                length += size
        done = match.end()
    pieces.append((length, done, True))

    def place(at: int, end: bool) -> int:
        number = bisect_right(pieces, at, key=lambda piece: piece[0]) - 1
        begins, start, same = pieces[number]
        if same:
            return start + at - begins + end
        return pieces[number + 1][1] if end else start

    return [_Span(place(span.start, False), place(span.end - 1, True), span.mark) for span in spans]


def _read(match: re.Match[str]) -> str:
    """Return the character that an escape means; nothing for what is drawn as nothing."""
    results = match.groupdict()
    if text := results["slash"] or results["backslash"]:
        return text
    if results["decimal"]:
        return chr(int(results["decimal"])) if 32 < int(results["decimal"]) < 127 else ""
    digits = results["percent"] or results["hex"] or results["entity"]
    return chr(int(digits, 16)) if digits else ""


def _join_spans(spans: Iterable[_Span]) -> list[_Span]:
    """Return spans in order, overlapping spans merged."""
    joined: list[_Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if joined and span.start < joined[-1].end:
            joined[-1] = joined[-1]._replace(end=max(joined[-1].end, span.end))
        elif span.end > span.start:
            joined.append(span)
    return joined


def _adds(text: str, span: _Span, spans: list[_Span]) -> bool:
    """Return whether a span of a text in disguise belongs to a secret, and is not the next line after a whole key."""
    place = bisect_right(spans, span.start, key=lambda other: other.start) - 1
    if place < 0 or span.start >= spans[place].end:
        return True
    return _CONTINUED.search(text[spans[place].end : span.end]) is not None


def _secrets_in(name: str, value: str) -> Iterator[str]:
    """Yield what of a variable's value is a secret: all of it, and the password of an address."""
    if not _may_name_a_secret(name):
        return
    if "://" in value:
        yield from secrets_of_address(value)
        return
    if _NAMED_LIKE_A_PLACE.search(name):
        return
    if _is_secret(value) and (not re.search(r"\s", value) or _A_PASSWORD.search(name)):
        yield value


def secrets_of_address(address: str) -> Iterator[str]:
    """Yield an address that holds a password, and the password; nothing if it holds none."""
    try:
        password = urlsplit(address).password
    except ValueError:
        password = address.partition("://")[2].rpartition("@")[0].partition(":")[2]
    if password:
        yield address
        yield from {text for text in (password, unquote(password)) if _is_secret(text)}


def _is_secret(value: str) -> bool:
    """Return whether a value can be masked everywhere: it is not a place, a setting or a word."""
    if len(value) < SHORTEST_VALUE or value.startswith(("~", "./", "../")) or _SETTING.fullmatch(value):
        return False
    return not _is_place(value)


def _is_place(value: str) -> bool:
    """Return whether a value is a path: something is there, or could be made there."""
    path = pathlib.Path(value)
    try:
        is_below = path.parent not in (pathlib.Path("/"), pathlib.Path()) and path.parent.is_dir()
        return "/" in value and (path.exists() or is_below)
    except (OSError, ValueError):  # A name that no file can have.
        return False


def _spellings(value: str) -> set[str]:
    """Return a known value as it is and as programs write it."""
    data = value.encode("utf-8", "surrogateescape")
    texts = {
        value,
        quote(value, safe=""),
        quote(value),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
    }
    texts |= {data.hex(), data.hex().upper()}
    for before in range(3):
        # A longer text in base64 holds it at one of three places; letters at its ends depend on what is next to it.
        coded = base64.b64encode(b"\0" * before + data)[(0, 2, 3)[before] :].rstrip(b"=")
        inner = (coded if (before + len(data)) % 3 == 0 else coded[:-1]).decode()
        texts |= {inner, inner.replace("+", "-").replace("/", "_")}
    return {text for text in texts if len(text) >= SHORTEST_VALUE and text.isprintable() or text == value}


ContractT = TypeVar("ContractT", bound="Contract")


def without_secrets(value: ContractT, masker: Masker | None = None) -> ContractT:
    """Return a value without what has the form of a secret, or without what a masker masks."""
    data = value.model_dump(mode="json")
    masked = (masker or forms_only()).value(data)
    return value if masked is data else type(value).model_validate_json(json.dumps(masked))


def map_json(text: str, change: Callable[[str], str], change_all: Callable[[Any], Any] | None = None) -> str:
    """Return JSON with every string in it changed, the same text where none is; what is not JSON is changed as text."""
    try:
        value = json.loads(text, object_pairs_hook=each_once)
        changed = map_strings(value, change) if change_all is None else change_all(value)
        return text if changed == value else json.dumps(changed, ensure_ascii=False)
    except (ValueError, RecursionError):
        return change(text)


def map_strings(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with all its strings changed, names of fields included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, (list, tuple)):
        return [map_strings(element, change) for element in value]
    if isinstance(value, dict):
        return {change(name): map_strings(element, change) for name, element in value.items()}
    return value
