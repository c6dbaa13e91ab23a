"""Judges the stored packets of a session again, with another reviewer or the same one. Nothing is recorded."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from reviews.audit.metric_lines import parts_of
from reviews.evidence.gather import gather
from reviews.evidence.readable_evidence import MOST_ANSWER, EvidenceBrowser
from reviews.gate.gate_decision import looked_up, settle
from reviews.gate.reviewer import Looking, LookupAnswer, PacketReviewer, PaidReviewer, no_verdict
from reviews.history.attempt import Attempt
from reviews.history.history import History
from reviews.reviewers.process.signing_rules import make_packet_reviewer
from reviews.trail.chain.store import Store
from specs.system.digests import Digest, digest_bytes
from specs.system.errors import BudgetExceeded, PeergateError, UserError
from specs.system.vendors.parties import ReviewerSpec
from specs.trail.entry import DESIGN
from specs.trail.gate_bodies import DecisionEntry
from specs.trail.key_policy import PERSON
from specs.trail.verdict import Outcome, Packet, Verdict, no_verdict_of

OPENING: tuple[Outcome, ...] = ("approve", "null")


class ReplayedVote(NamedTuple):
    """One answer of the reviewer to a stored packet, and what the gate would have decided on it."""

    approve: bool | None
    """None without a verdict."""
    outcome: Outcome
    blocking: tuple[str, ...]
    """The statements of its blocking findings."""
    error: str
    usd: float


class ReplayedGate(NamedTuple):
    """A gate as it was decided, and as it would be decided now."""

    stage: str
    attempt: int
    reviewer: str
    recorded: ReplayedVote
    votes: tuple[ReplayedVote, ...]

    @property
    def flips(self) -> int:
        """How many of the votes approve where the recorded verdict did not, or the reverse."""
        verdicts = [vote for vote in self.votes if vote.approve is not None]
        return sum(vote.approve != self.recorded.approve for vote in verdicts)

    @property
    def is_opened_otherwise(self) -> bool:
        """Return whether any vote would have opened a closed gate, or closed an open one."""
        return any((vote.outcome in OPENING) != (self.recorded.outcome in OPENING) for vote in self.votes)

    def as_json(self) -> dict[str, Any]:
        """Return the form of `replay --json`."""
        facts = {"recorded": self.recorded._asdict(), "votes": [vote._asdict() for vote in self.votes]}
        return self._asdict() | facts | {"flips": self.flips, "opened_otherwise": self.is_opened_otherwise}


class GateReplay:
    """Puts the packets of a session to a reviewer again."""

    def __init__(
        self,
        run: Path,
        history: History,
        spec: ReviewerSpec,
        say: Callable[[str], None],
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """Wire the reviewer.

        Raises:
            UserError: a person is named, or the model's key, package or price is missing.
        """
        if spec.vendor == PERSON:
            raise UserError("a person cannot be asked again", hint="use a model or 'checklist'")
        self._run, self._history, self._say = run, history, say
        self._spec = spec.with_reasoning()
        self.reviewer: PacketReviewer = make_packet_reviewer(
            self._spec, environ, lambda seconds, why, _: say(f"{why}: asked again in {seconds:.0f} s")
        )
        self.gates = tuple(attempt for attempt in self._iterate_decisions() if _is_judged(attempt))
        """The gates whose packet a reviewer judged, in the order of the trail."""

    def _iterate_decisions(self) -> Iterator[Attempt]:
        for entry in self._history.of(DecisionEntry):
            yield self._history.attempt(entry.body.stage or DESIGN, entry.body.attempt)

    def cost_cap(self, votes: int) -> float:
        """Return the most USD that so many votes on every gate can cost."""
        return votes * sum(self._cap(gate) for gate in self.gates)

    def _cap(self, gate: Attempt) -> float:
        packet = gate.packet_value
        return self.reviewer.cost_cap(packet) if packet and isinstance(self.reviewer, PaidReviewer) else 0.0

    def judge(self, votes: int, max_usd: float | None = None) -> Iterator[ReplayedGate]:
        """Yield each gate with its votes as they come.

        Raises:
            BudgetExceeded: the rest of ``max_usd`` does not pay for the next answer.
        """
        spent = 0.0
        for place, gate in enumerate(self.gates, 1):
            answers: list[ReplayedVote] = []
            for number in range(1, votes + 1):
                if max_usd is not None and spent + self._cap(gate) > max_usd:
                    text = f"{spent:.2f} of {max_usd:g} USD are spent, and {gate.name} may cost {self._cap(gate):.2f}"
                    raise BudgetExceeded(text, where="--max-cost", hint="raise it, or take fewer --votes")
                of = f", vote {number} of {votes}" if votes > 1 else ""
                self._say(f"asking {self.reviewer.name} about {gate.name} ({place} of {len(self.gates)}{of})")
                answers.append(self._ask(gate))
                spent += answers[-1].usd
            yield ReplayedGate(gate.stage, gate.number, *self._read_record(gate), tuple(answers))

    def _read_record(self, gate: Attempt) -> tuple[str, ReplayedVote]:
        judged, verdict, decision = gate.verdict, gate.verdict_value, gate.decision
        assert judged is not None and verdict is not None and decision is not None
        approve = None if verdict.no_verdict else verdict.approve
        usd = judged.body.usd or 0.0
        return judged.body.reviewer, ReplayedVote(
            approve, decision.body.outcome, _blocking(verdict), judged.body.error, usd
        )

    def _ask(self, gate: Attempt) -> ReplayedVote:
        packet, answers = gate.packet_value, dict[Digest, str]()
        assert packet is not None
        verdict, error, usd = self.ask(packet, self.look_into(gate, answers))
        looked = looked_up(self._history, gate.stage) | answers
        decision = settle(self._history.resolved, packet, verdict, gate.number, looked)
        approve = None if verdict.no_verdict else verdict.approve
        return ReplayedVote(approve, decision.outcome, _blocking(verdict), error, usd)

    def ask(self, packet: Packet, looking: Looking | None = None) -> tuple[Verdict, str, float]:
        """Return what the reviewer says of a packet, why it gave no verdict, and what the answer cost in USD."""
        digest, usd = packet.content_digest(), 0.0
        try:
            if not isinstance(self.reviewer, PaidReviewer):
                return self.reviewer.review(packet, digest), "", usd
            review = self.reviewer.ask(packet, digest, looking)
            usd = review.exchange.usd
            if review.value is None:
                raise review.error or PeergateError("no verdict")
            return review.value, "", usd
        except PeergateError as failed:
            return no_verdict(self.reviewer.name, no_verdict_of(failed)), failed.message, usd

    def look_into(self, gate: Attempt, answers: dict[Digest, str]) -> Looking | None:
        """Return what a model may look into, which is what it could look into then; ``answers`` grow as it does."""
        if not self._spec.looks or self._spec.api != "responses":
            return None
        store: Store = self._history.store
        evidence = None if gate.stage == DESIGN else gather(self._run, self._history, gate.stage, gate.number)
        browser = EvidenceBrowser(self._history.resolved, store, evidence, parts_of)

        def look(tool: str, arguments: str, most: int) -> LookupAnswer:
            answer = browser.answer(tool, arguments, min(most, MOST_ANSWER))
            answers[digest_bytes(answer.text.encode())] = answer.text
            return LookupAnswer(answer.text, answer.is_error, f"replay/{gate.name}/{len(answers)}")

        return Looking(tuple(browser.names()), look)


def _is_judged(gate: Attempt) -> bool:
    """Return whether a reviewer judged the packet of a gate: not a repeated verdict, nor a withdrawn attempt."""
    judged, packet = gate.verdict, gate.packet_value
    return judged is not None and packet is not None and judged.body.same_as is None and not packet.withdrawn


def _blocking(verdict: Verdict) -> tuple[str, ...]:
    return tuple(finding.statement for finding in verdict.findings if finding.severity == "blocking")
