"""What a reviewer may look into next to the packet, and the answers to its calls. Gate and audit compute the same.

It is the evidence of the packet and nothing else: rows and texts that the attempt read and left, those of the arms it
is compared with, registered data, the end of the log, the script. Where held-out items were seen, texts are replaced by
their length and a number that equal texts share; the packet shows what a reviewer sees of them. Secrets are masked.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, cast

from reviews.evidence import row_queries
from reviews.evidence.evidence import Evidence
from reviews.evidence.heldout_screen import sees_heldout
from reviews.evidence.row_lines import LineSelection, ranges
from reviews.evidence.row_queries import MOST_READABLE, ArtifactRows
from reviews.trail.chain.store import Store
from specs.session.design import ResolvedDesign
from specs.stages.base.sampling import TOKEN_IDS
from specs.system.errors import EvidenceMissing
from specs.system.masking import forms_only
from specs.system.text import enclose, plain
from specs.trail.tool_arguments import (
    REVIEWER_TOOLS,
    TEXT_TOOLS,
    CompareRows,
    Grep,
    MetricLines,
    QueryRows,
    ReadArtifact,
    Tool,
    ToolCallRefusal,
    read_as,
)

MOST_ANSWER = 12_000
"""Bytes of one answer."""
_CUT = "\n[cut: ask for less at a time]"
MOST_RANGES = 3_000
LABELS = ("item", "id", "kind", "group", "finish", "preferred", "role")
"""Fields of rows whose texts are labels and never an answer."""
ANSWERS = ("constraint", "target")
"""Fields that say what is right, in numbers too."""


class ReadableText(NamedTuple):
    """One text under a name."""

    name: str
    what: str
    read: Callable[[], bytes]
    hides: bool = False
    """Whether it was made from held-out items."""


class ToolAnswer(NamedTuple):
    """The answer to a call."""

    text: str
    is_error: bool = False


class Texts(ABC):
    """Texts by name, and the answers to calls about them."""

    tools: tuple[Tool, ...] = TEXT_TOOLS

    @property
    @abstractmethod
    def all_names(self) -> Sequence[str]:
        """The names of the texts."""

    @abstractmethod
    def text(self, name: str) -> str:
        """Return the text of one of these names, as it may be read."""

    def answer(self, tool: str, arguments: str, most: int = MOST_ANSWER) -> ToolAnswer:
        """Carry a call out and return at most so many bytes; whatever is wrong with the call is the answer."""
        try:
            text, is_error = self._carried_out(tool, arguments), False
        except (ToolCallRefusal, EvidenceMissing) as refused:
            text, is_error = str(refused), True
        text = plain(forms_only().text(text), len(text) + MOST_ANSWER)
        if len(data := text.encode()) > most:
            text = data[: most - len(_CUT)].decode("utf-8", "ignore") + _CUT
        return ToolAnswer(text, is_error)

    def _carried_out(self, tool: str, arguments: str) -> str:
        form = next((current_tool.arguments for current_tool in self.tools if current_tool.name == tool), None)
        if form is None:
            raise ToolCallRefusal(f"unknown tool '{plain(tool, 60)}': {', '.join(tool.name for tool in self.tools)}")
        match read_as(form, arguments):
            case QueryRows() as request:
                return row_queries.query(self._rows(request.name), request)
            case CompareRows() as request:
                return row_queries.compare(self._rows(request.first), self._rows(request.second), request)
            case Grep() as request:
                names = [request.name] if request.name else list(self.all_names)
                return row_queries.grep([(name, self._named(name)) for name in names], request)
            case ReadArtifact() as request:
                return row_queries.part_of(request.name, self._named(request.name), request)
            case MetricLines() as request:
                return self.lines(request.metric)
            case other:
                raise ToolCallRefusal(f"'{type(other).__name__}' is not a request of a reviewer")

    def lines(self, metric: str) -> str:
        """Return the lines that a metric counts; raises Refused if there are none."""
        raise ToolCallRefusal(f"'{plain(metric, 60)}' was not computed from these texts")

    def _rows(self, name: str) -> ArtifactRows:
        return row_queries.rows_of(name, self._named(name))

    def _named(self, name: str) -> str:
        if name not in self.all_names:
            raise ToolCallRefusal(
                f"'{plain(name, 60)}' is not among the evidence: {', '.join(self.all_names) or 'there is none'}"
            )
        return self.text(name)


class EvidenceBrowser(Texts):
    """The readable evidence of one packet: of an attempt, or of the design before any evidence exists."""

    tools = REVIEWER_TOOLS

    def __init__(
        self,
        resolved: ResolvedDesign,
        store: Store,
        evidence: Evidence | None,
        parts_of: Callable[[Evidence, str], tuple[LineSelection, ...]],
        numbers: dict[str, int] | None = None,
    ) -> None:
        """``parts_of`` returns the lines of a metric; it needs the judges, which are above this module.

        ``numbers`` of withheld texts are continued, where several attempts are read side by side.
        """
        self._resolved, self._store, self._evidence, self._parts_of = resolved, store, evidence, parts_of
        self._continued = {} if numbers is None else numbers
        self._texts: dict[str, str] = {}

    @property
    def all_names(self) -> Sequence[str]:
        """The names of what may be read."""
        return list(self.readable)

    @cached_property
    def readable(self) -> Mapping[str, ReadableText]:
        """What may be read, by name."""
        return {readable.name: readable for readable in self._all()}

    def _all(self) -> Iterator[ReadableText]:
        heldout = self._resolved.data_digests["heldout"]
        for name, digest in sorted(self._resolved.data_digests.items()):
            if name not in self._resolved.spec.hidden_data() and digest != heldout:
                yield ReadableText(f"data.{name}", "registered rows", lambda digest=digest: self._store.get(digest))
        if (evidence := self._evidence) is None:
            return
        spec = self._resolved.spec
        hides = sees_heldout(spec, evidence.stage)
        for name, path in sorted(evidence.outputs.items()):
            yield from self._file(name, "what the attempt left", path, hides)
        for role, path in sorted(evidence.inputs.items()):
            owner = evidence.stage.inputs.get(role, "").partition(".")[0]
            made = next((stage for stage in spec.stages if stage.name == owner), None)
            hidden = path == self._store.path(heldout) or owner == "heldout" or (made and sees_heldout(spec, made))
            yield from self._file(f"inputs.{role}", "what the attempt read", path, bool(hidden))
        for stage, arm in sorted(evidence.arms.items()):
            if arm.rows is not None:
                yield from self._file(f"{stage}.rows", "of a stage it is compared with", arm.rows, True)
        if evidence.baseline_rows is not None:
            yield from self._file("baseline.rows", "of the other arm", evidence.baseline_rows, True)
        if evidence.log_tail and not hides:
            yield ReadableText("log", "the end of the log", evidence.log_tail.encode)
        if evidence.code:
            yield ReadableText("script", "the script as it ran", evidence.code.encode)

    def _file(self, name: str, what: str, path: Path, hides: bool) -> Iterator[ReadableText]:
        # What is kept elsewhere are weights.
        if path.is_relative_to(self._store.root) and path.is_file():
            yield ReadableText(name, what, path.read_bytes, hides)

    def names(self) -> list[str]:
        """Return what may be read, a line each, for the reviewer."""
        hidden = " (texts are replaced by characters, words and `same`, a number that equal texts share)"
        return [
            f"{readable.name}: {readable.what}{hidden if readable.hides else ''}" for readable in self.readable.values()
        ]

    def text(self, name: str) -> str:
        """Return a text without secrets, and without what held-out items say."""
        readable = self.readable[name]
        if name not in self._texts:
            text = _beginning(readable)
            self._texts[name] = forms_only().text(without_texts(text, self._numbers) if readable.hides else text)
        return self._texts[name]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """Number the texts that are withheld, over all files in their order, whichever of them is asked for."""
        for readable in self.readable.values():
            if readable.hides:
                without_texts(_beginning(readable), self._continued)
        return self._continued

    def lines(self, metric: str) -> str:
        """Return the lines of the attempt's rows that a metric counts; raises Refused if there are none."""
        if self._evidence is None:
            raise ToolCallRefusal("nothing was measured yet")
        try:
            parts = self._parts_of(self._evidence, metric)
        except KeyError as error:
            raise ToolCallRefusal(f"unknown metric '{plain(metric, 60)}'") from error
        if not parts:
            raise ToolCallRefusal(f"'{plain(metric, 60)}' is over all rows, or not computed from single ones")
        sentences = [
            f"{part.file}, {len(part.lines)} of {part.of} lines, {part.what}: {plain(ranges(part.lines), MOST_RANGES)}"
            for part in parts
        ]
        return enclose("lines", "\n".join(sentences))


def _beginning(file: ReadableText) -> str:
    return file.read()[: 4 * MOST_READABLE].decode("utf-8", "replace")[:MOST_READABLE]


def without_texts(text: str, numbers: dict[str, int]) -> str:
    """Return rows of held-out items without any text but labels; lines that are not rows are left out.

    Texts without a number get the next one.
    """
    texts: list[str] = []
    for line in filter(str.strip, text.splitlines()):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            texts.append(json.dumps(_hidden(cast(dict[str, Any], row), numbers), ensure_ascii=False))
    return "\n".join(texts)


def _hidden(value: Any, numbers: dict[str, int]) -> Any:
    if isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        return {
            name: value if name in LABELS and isinstance(value, str) else _hidden(value, numbers)
            for name, value in items
            if name not in TOKEN_IDS and name not in ANSWERS
        }
    if isinstance(value, list):
        return [_hidden(element, numbers) for element in cast(list[Any], value)]
    if not isinstance(value, str):
        return value
    return {"characters": len(value), "words": len(value.split()), "same": numbers.setdefault(value, len(numbers) + 1)}
