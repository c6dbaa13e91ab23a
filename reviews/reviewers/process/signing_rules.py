"""How the reviewer's process answers a message, and which entries it signs.

It signs ``verdict`` entries of its session with a verdict that this process reached: by review, by merging what members
of a panel signed, by repeating an earlier verdict on the same evidence, or by stating that it has none, which approves
nothing. A verdict belongs to the first entry that is signed for it. Everything else is refused, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from reviews.gate.panel import ReviewerAnswer, merge
from reviews.gate.reviewer import (
    FACTS,
    Looking,
    LookupAnswer,
    PacketReviewer,
    PaidReviewer,
    ReviewExchange,
    facts_of,
    no_verdict,
)
from reviews.reviewers.checklist import Checklist
from reviews.reviewers.process import messages
from reviews.trail.chain.envelope import entry_of, open_envelope, pae, seal
from reviews.trail.chain.keys import EARLIER, SigningKey, is_signed, load_key
from specs.system.digests import digest_bytes
from specs.system.errors import BlockedError, PeergateError, UserError
from specs.system.masking import current, without_secrets
from specs.system.vendors.parties import ReviewerSpec as ReviewerSpec
from specs.trail.entry import Entry
from specs.trail.key_policy import PERSON
from specs.trail.verdict import Packet, Verdict, no_verdict_of, retarget_spans

OF_EVERY_VERDICT = frozenset({"stage", "attempt", "packet", "verdict", "error", "cause", "reviewer"})


class Refusal(Exception):
    """A message is refused; the only argument says why."""


class IssuedVerdict(NamedTuple):
    """A verdict of this process, as the entry that records it must state it."""

    packet: str
    verdict: str
    reviewer: str
    error: str
    cause: str | None


def make_packet_reviewer(
    spec: ReviewerSpec, environ: Mapping[str, str], waits: Callable[[float, str, float], None] | None = None
) -> PacketReviewer:
    """Build the reviewer that a spec names, who is not a person; UserError without its key, package or price."""
    if spec.vendor == Checklist.name:
        return Checklist()
    if spec.is_plugin:
        from reviews.reviewers.vendors.plugin_reviewer import plugin_reviewer

        return plugin_reviewer(spec, environ)
    # Imported here, so that only model reviewers need an SDK.
    from reviews.reviewers.vendors.review_model import model_reviewer, sleeps

    return model_reviewer(spec, environ, waits or sleeps)


class Duty:
    """The state of one process: its key, its reviewers and their verdicts."""

    def __init__(
        self,
        environ: Mapping[str, str],
        waits: Callable[[float, str, float], None] | None = None,
        look: Callable[[messages.Look], messages.LookupAnswerMessage] | None = None,
    ) -> None:
        """``waits`` waits before a call of a model is repeated (``review_model.Waits``), ``look`` asks the session."""
        self._environ = environ
        self._waits = waits
        self._look = look
        self._session = ""
        self._key: SigningKey | None = None
        self._known: tuple[bytes, ...] = ()
        self._humans: tuple[bytes, ...] = ()
        self._reviewers: list[PacketReviewer | None] = []
        self._issued: dict[IssuedVerdict, dict[str, Any]] = {}
        self._entries: dict[IssuedVerdict, str] = {}

    def answer(self, question: messages.ProcessMessage) -> messages.ProcessMessage:
        """Do what a message asks, or say why not."""
        try:
            if isinstance(question, messages.StartMessage):
                return self._start(question)
            if self._key is None:
                raise Refusal("nothing was started")
            match question:
                case messages.ReviewMessage():
                    return self._review(question)
                case messages.MergeMessage():
                    return self._merge(question)
                case messages.RepeatMessage():
                    return self._repeat(question)
                case messages.NoVerdictMessage():
                    return self._no_verdict(question)
                case messages.Sign():
                    return messages.SignatureMessage(signature=self._key.sign(self._signable(question.data)))
                case _:
                    raise Refusal(f"'{type(question).__name__}' is not a question")
        except Refusal as refusal:
            return messages.RefusalMessage(message=str(refusal))
        except PeergateError as error:
            is_users = isinstance(error, UserError)
            return messages.RefusalMessage(is_users=is_users, message=error.message, where=error.where, hint=error.hint)

    def _start(self, start: messages.StartMessage) -> messages.Ready:
        if self._key is not None:
            raise Refusal("it was started before")
        reviewers = [
            None if reviewer.vendor == PERSON else make_packet_reviewer(reviewer, self._environ, self._waits)
            for reviewer in start.reviewers
        ]
        path = Path(start.key)
        key = load_key(path)
        # A reviewer signed with the keys before this one too.
        before = [load_key(current_path).public for current_path in sorted(path.parent.glob(EARLIER.format(path.stem)))]
        self._session, self._reviewers, self._key = start.session, reviewers, key
        self._known = (key.public, *before)
        self._humans = tuple(bytes.fromhex(hex) for hex in start.humans)
        return messages.Ready(public=key.public.hex())

    def _review(self, requested_review: messages.ReviewMessage) -> messages.VerdictMessage:
        packet = self._packet(requested_review.packet, requested_review.digest)
        reviewer = (
            self._reviewers[requested_review.reviewer]
            if 0 <= requested_review.reviewer < len(self._reviewers)
            else None
        )
        if reviewer is None:
            raise Refusal(f"reviewer {requested_review.reviewer} cannot be asked here")
        exchange: ReviewExchange | None = None
        try:
            if isinstance(reviewer, PaidReviewer):
                review = reviewer.ask(packet, requested_review.digest, self._looking(requested_review))
                exchange, verdict = review.exchange, review.value
                if verdict is None:
                    raise review.error or BlockedError("no verdict", where=reviewer.name)
            else:
                verdict = reviewer.review(packet, requested_review.digest)
        except PeergateError as failed:
            why = without_secrets(no_verdict_of(failed), current())
            return messages.VerdictMessage(verdict=None, no_verdict=why, exchange=exchange)
        facts = facts_of(exchange, digest_bytes) if exchange else {}
        return self._remember(requested_review.digest, verdict, facts, exchange=exchange)

    def _looking(self, review: messages.ReviewMessage) -> Looking | None:
        if (look := self._look) is None or not review.readable:
            return None

        def look_up(tool: str, arguments: str, most: int) -> LookupAnswer:
            statement = look(messages.Look(tool=tool, arguments=arguments, most=most))
            return LookupAnswer(statement.text, statement.is_error, statement.entry)

        return Looking(review.readable, look_up)

    def _merge(self, requested_merge: messages.MergeMessage) -> messages.VerdictMessage:
        answers: list[ReviewerAnswer] = []
        for spoken in requested_merge.members:
            body, verdict = self._heard(spoken)
            if body["packet"] != requested_merge.packet:
                raise Refusal(f"a member's verdict is on {body['packet']}, the panel's on {requested_merge.packet}")
            silent = verdict.no_verdict
            if bool(body["error"]) != bool(silent):
                raise Refusal("a member's entry and its verdict disagree on whether it gave a verdict")
            answers.append(ReviewerAnswer(body["reviewer"], None if silent else verdict, silent))
        return self._remember(requested_merge.packet, merge(answers, requested_merge.quorum), {"members": len(answers)})

    def _repeat(self, repeat: messages.RepeatMessage) -> messages.VerdictMessage:
        from reviews.gate.packet import evidence_digest

        now, before = digest_bytes(repeat.packet.encode()), digest_bytes(repeat.before.encode())
        packet, earlier = self._packet(repeat.packet, now), self._packet(repeat.before, before)
        body, verdict = self._heard(repeat.spoken)
        if (body["packet"], body["error"], body["attempt"]) != (before, "", packet.unchanged_since):
            raise Refusal("the verdict to repeat is on another packet, or is missing")
        if packet.stage != earlier.stage or evidence_digest(packet) != evidence_digest(earlier):
            raise Refusal("the evidence is not that of the earlier attempt")
        return self._remember(now, retarget_spans(verdict, before, now), {"same_as": packet.unchanged_since})

    def _no_verdict(self, verdict: messages.NoVerdictMessage) -> messages.VerdictMessage:
        if not verdict.why.what:
            raise Refusal("no reason is recorded for the missing verdict")
        return self._remember(verdict.packet, no_verdict(verdict.reviewer, verdict.why), {})

    def _remember(
        self, packet: str, verdict: Verdict, facts: dict[str, Any], exchange: ReviewExchange | None = None
    ) -> messages.VerdictMessage:
        # Before it is signed: what is kept must be what was signed.
        verdict = without_secrets(verdict, current())
        data, why = verdict.canonical(), verdict.no_verdict
        error, cause = (str(why), why.cause) if why else ("", None)
        self._issued[IssuedVerdict(packet, digest_bytes(data), verdict.reviewer, error, cause)] = facts
        return messages.VerdictMessage(verdict=data.decode(), no_verdict=why, exchange=exchange)

    def _heard(self, spoken: messages.Spoken) -> tuple[dict[str, Any], Verdict]:
        """Return body and verdict of an entry that this key, or a person's, signed."""
        envelope = seal(spoken.payload.encode(), spoken.signatures.encode())
        try:
            opened = open_envelope(envelope)
            entry = entry_of(opened.payload)
            verdict = Verdict.model_validate_json(spoken.verdict)
        except ValueError as error:
            raise Refusal(f"an earlier verdict cannot be read: {error}") from error
        # A person signs their own verdict.
        may = (*self._known, *self._humans) if entry.body.get("reviewer") == PERSON else self._known
        if not any(
            is_signed(key, signature.data, pae(opened.payload)) for key in may for signature in opened.signatures
        ):
            raise Refusal("an earlier verdict is not signed with the reviewer's key")
        if entry.kind != "verdict" or entry.session != self._session:
            raise Refusal(f"'{entry.key}' is not a verdict of session '{self._session}'")
        if entry.body["verdict"] != digest_bytes(spoken.verdict.encode()):
            raise Refusal(f"'{entry.key}' records another verdict")
        return entry.body, verdict

    def _packet(self, text: str, digest: str) -> Packet:
        data = text.encode()
        if digest_bytes(data) != digest:
            raise Refusal(f"the packet has the digest {digest_bytes(data)}, not {digest}")
        try:
            packet = Packet.model_validate(json.loads(text))
        except ValueError as error:
            raise Refusal(f"invalid packet: {str(error).splitlines()[0]}") from error
        if packet.canonical() != data:
            raise Refusal("the packet is not in canonical form")
        return packet

    def _signable(self, data: bytes) -> bytes:
        """Return the bytes if the entry they state may be signed; raises Refusal otherwise."""
        try:
            payload = data.split(b" ", 4)[-1]
            if pae(payload) != data:
                raise ValueError("not the encoding that is signed")
            entry = entry_of(payload)
        except ValueError as error:
            raise Refusal(f"invalid entry: {error}") from error
        if why := self._why_not(entry):
            raise Refusal(f"'{entry.key}' is not signed: {why}")
        return data

    def _why_not(self, entry: Entry) -> str:
        if entry.kind != "verdict":
            return f"reviewers sign verdicts, this is of kind '{entry.kind}'"
        if entry.session != self._session:
            return f"it is of session '{entry.session}', this is '{self._session}'"
        if entry.policy is not None:
            return "verdicts change no policy"
        body = entry.body
        statement = IssuedVerdict(
            *(str(body.get(name)) for name in IssuedVerdict._fields[:-1]), cause=body.get("cause")
        )
        facts = self._issued.get(statement)
        if facts is None:
            named = f"'{statement.reviewer}' on {statement.packet}"
            return f"no reviewer here reached the verdict {statement.verdict} of {named}"
        at = f"verdict/{body.get('stage')}.{body.get('attempt')}"
        if entry.key != at and not entry.key.startswith(f"{at}/"):
            return f"it says that it is of '{at}'"
        if self._entries.get(statement, entry.key) != entry.key:
            return f"the verdict was signed as '{self._entries[statement]}'"
        other = {name for name, value in facts.items() if body.get(name) != value}
        allowed = OF_EVERY_VERDICT | facts.keys() | ({"reservation"} if "usd" in facts else set())
        if statement.error and "members" not in facts:
            # When the process that asked is gone, the costs of a review without a verdict are unknown here.
            allowed |= FACTS | {"reservation"}
        other |= body.keys() - allowed
        if other:
            return f"{', '.join(sorted(other))} is not what the reviewer left"
        self._entries[statement] = entry.key
        return ""
