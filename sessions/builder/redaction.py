"""Redacts what no builder may read: secrets, held-out prompts and answers, reviewers' prompts, a verifier's file.

Who reviews is redacted too.

Parts of held-out texts are redacted too, unless they occur in the training data. The limits are those of
:mod:`sessions.builder.phrase_match` and :mod:`specs.system.masking`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Protocol

from reviews.evidence.heldout_screen import sees_heldout as sees_heldout
from reviews.history.history import History
from reviews.trail.chain.store import Store
from sessions.builder.phrase_match import ProtectedTexts
from specs.session.session_spec import ResolvedSpec
from specs.stages.base.artifacts import Item
from specs.system.masking import map_json, map_strings, masker_of
from specs.system.text import enclose, plain
from specs.trail.builder_tools import TOOLS
from specs.trail.session_bodies import ExitEntry
from training.rules.tasks.conversation import user_turns_of

HELDOUT, PRIVATE, REVIEWER = "[held-out]", "[withheld]", "[a reviewer]"
PROMPT_RUN = 5
"""Words in a row of a held-out prompt that are redacted: half of a prompt of ten words."""
ANSWER_RUN = 12
"""Words in a row of a held-out answer: shorter runs occur in any text of the model."""
INSTRUCTIONS_RUN = 10
_INSTRUCTIONS = (
    "reviewers/vendors/reviewer.md",
    *("requests/question.md", "requests/review.md", "requests/adversarial.md", "requests/draft.md"),
)
_ONLY_PRINTABLE = re.compile(r"[\x20-\x7e\n\t]*")
CACHED_TEXTS = 1024
MOST_READ = 4
"""Remembered artifacts, and (above) texts: every turn sends the conversation again, artifacts are read in pages."""


class RedactionSource(Protocol):
    """What a wall reads of a session."""

    @property
    def resolved(self) -> ResolvedSpec:
        """The registered spec."""
        ...

    @property
    def store(self) -> Store:
        """The evidence."""
        ...

    @property
    def history(self) -> History:
        """What is recorded so far."""
        ...


class Redactor:
    """Redacts texts for a builder, a transcript or the trail."""

    def __init__(self, session: RedactionSource, environ: Mapping[str, str]) -> None:
        self._masker = masker_of(environ)
        store, digests = session.store, session.resolved.data_digests
        known = tuple(
            digest for name, digest in sorted(digests.items()) if name not in session.resolved.spec.hidden_data()
        )
        answers = tuple(rows_on_heldout(session))
        self._rules = (
            (_prompts(store.root, session.resolved.list_splits(), known, session.resolved.spec.objective), HELDOUT),
            (_answers(store.root, answers), HELDOUT),
            (_instructions(), PRIVATE),
            (_verifier(session), PRIVATE),
        )
        self._reviewers = _names(session)
        self._scrub = lru_cache(maxsize=CACHED_TEXTS)(self._scrub_text)
        self._read = lru_cache(maxsize=MOST_READ)(self._read_clean_text)
        self._store = store

    def clean(self, text: str, limit: int | None = None) -> str:
        """Return a text made printable, then redacted, then cut: hidden characters or a cut could hide a secret."""
        scrubbed = self.scrub(_printable(text))
        return _printable(scrubbed) if limit is None or len(scrubbed) <= limit else plain(scrubbed, limit)

    def readable(self, digest: str, most: int) -> str:
        """Return a stored text, cleaned as a whole, so that pages are cut from clean text."""
        return self._read(digest, most)

    def _read_clean_text(self, digest: str, most: int) -> str:
        return self.clean(self._store.get(digest)[: most * 4].decode("utf-8", "replace")[:most])

    def scrub(self, text: str) -> str:
        """Return the text with marks in place of what is withheld; lone surrogates are replaced too."""
        return self._scrub(text)

    def scrub_json(self, text: str) -> str:
        """Return JSON with every string scrubbed without its escapes; anything else is scrubbed as plain text."""
        return map_json(self._masker.json(text), self.scrub)

    def scrub_bytes(self, data: bytes) -> bytes:
        """Return the body of a request or response without what is withheld."""
        return self.scrub_json(data.decode("utf-8", "replace")).encode("utf-8", "replace")

    def _scrub_text(self, text: str) -> str:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        text = self._masker.text(text)
        if self._reviewers is not None:
            text = self._reviewers.sub(REVIEWER, text)
        for protected, mark in self._rules:
            for start, end in reversed(protected.spans(text)):
                text = f"{text[:start]}{mark}{text[end:]}"
        return text


@lru_cache(maxsize=8)
def _prompts(root: Path, splits: tuple[str, ...], known: tuple[str, ...], objective: str) -> ProtectedTexts:
    store = Store(root)
    return _protect_prompts(b"\n".join(map(store.get, splits)), [store.get(digest) for digest in known], objective)


def _protect_prompts(heldout: bytes, known: Iterable[bytes], objective: str) -> ProtectedTexts:
    """Return what held-out items ask, next to what is known of the training data."""
    # Rows of any form: items, examples and pairs have a prompt.
    readable = (json.loads(line)["prompt"] for data in known for line in data.splitlines() if line)
    items = (Item.model_validate_json(line) for line in heldout.splitlines() if line.strip())
    prompts = (text for item in items for text in user_turns_of(item))
    return ProtectedTexts(prompts, PROMPT_RUN, (objective, *readable))


def without_heldout(resolved: ResolvedSpec, text: str) -> str:
    """Return a text without the held-out prompts of a spec that no session has registered; raises as ``read_data``."""
    data = resolved.read_data()
    splits = [data.pop(name) for name in sorted(resolved.spec.hidden_data())]
    heldout = b"\n".join(splits)
    for start, end in reversed(_protect_prompts(heldout, data.values(), resolved.spec.objective).spans(text)):
        text = f"{text[:start]}{HELDOUT}{text[end:]}"
    return text


@lru_cache(maxsize=8)
def _answers(root: Path, rows: tuple[str, ...]) -> ProtectedTexts:
    def texts() -> Iterator[str]:
        for digest in rows:
            for line in Store(root).get(digest).decode("utf-8", "replace").splitlines():
                yield from _long_texts(line)

    return ProtectedTexts(texts(), ANSWER_RUN)


def _long_texts(line: str) -> Iterator[str]:
    """Yield the texts of a row with enough words; a row may be anything."""
    texts: list[str] = []
    try:
        map_strings(json.loads(line), lambda text: texts.append(text) or text)
    except (ValueError, RecursionError):
        return
    yield from (text for text in texts if len(text.split()) >= ANSWER_RUN)


@lru_cache(maxsize=1)
def _instructions() -> ProtectedTexts:
    texts = [files("reviews").joinpath(name).read_text(encoding="utf-8") for name in _INSTRUCTIONS]
    ours = [enclose("data", ""), *(tool.description for tool in TOOLS), *(json.dumps(tool.schema()) for tool in TOOLS)]
    return ProtectedTexts(texts, INSTRUCTIONS_RUN, ours)


def _verifier(session: RedactionSource) -> ProtectedTexts:
    """Return the task's file where the builder may not read it: logs, findings and errors could quote it."""
    resolved = session.resolved
    hidden = resolved.task_text is not None and not resolved.spec.verifier.builder_reads
    return ProtectedTexts([resolved.task_text or ""] if hidden else [], INSTRUCTIONS_RUN, (resolved.spec.objective,))


def _names(session: RedactionSource) -> re.Pattern[str] | None:
    """Return the pattern of models and addresses of reviewers: a builder must not know who judges it."""
    texts: set[str] = set()
    for reviewer in session.resolved.spec.reviewers():
        if reviewer.asks_a_model and reviewer.model:
            texts |= {f"{reviewer.vendor}:{reviewer.model}", reviewer.model} | (
                {reviewer.base_url} if reviewer.base_url else set()
            )
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(re.escape(text) for text in longest_first), re.IGNORECASE) if longest_first else None


def _printable(text: str) -> str:
    """Return a printable text; most texts already are, which is quicker to see than to make."""
    return text if _ONLY_PRINTABLE.fullmatch(text) else plain(text, len(text))


def rows_on_heldout(session: RedactionSource) -> Iterator[str]:
    """Yield the digests of the rows that were made from held-out items so far."""
    spec = session.resolved.spec
    seeing = {stage.name for stage in spec.stages if sees_heldout(spec, stage)}
    for ended in session.history.of(ExitEntry):
        if ended.body.stage in seeing:
            yield from (output.digest for output in ended.body.outputs.values() if output.stored)
