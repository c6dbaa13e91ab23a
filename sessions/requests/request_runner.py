"""Carries a request out and keeps the books: whose trail, whose money, asked before, asked now, answered, settled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from reviews.evidence.gather import registered_spec
from reviews.requests import request_record
from reviews.requests.ask_policy import policy_digest, tier_of
from reviews.requests.model_request import ask_model, instructions
from reviews.requests.rules.file_review import review_by_rule
from reviews.requests.rules.rule_findings import Material
from reviews.requests.rules.scorecard import score
from reviews.requests.run_evidence import RunEvidence
from reviews.trail.envelope import Recorded
from reviews.trail.store import Store
from reviews.trail.trail import Trail
from sessions.money import ledger
from sessions.nodes.reviewer_call import exchange_facts
from sessions.requests.consult_context import AnyRequest, Desk, Requested
from sessions.run.run_layout import STORE, TRAIL
from specs.errors import BudgetExceeded, PeergateError, ReviewerUnavailable, UserError
from specs.masking import current, without_secrets
from specs.session.session_spec import Effort, ResolvedSpec, Reviewer
from specs.text import plain
from specs.trail.requested_review import (
    AdversarialRequest,
    Answer,
    AnsweredBy,
    AnsweredEntry,
    AskedEntry,
    PolicyAnswer,
    QuestionAnswer,
    QuestionRequest,
    Reading,
    ReviewRequest,
    Tier,
)

if TYPE_CHECKING:  # Imports an HTTP client: whoever needs no model needs none.
    from reviews.reviewers.vendors.review_model import Model

STAGE = "asked"
"""What stands for the stage in the ledger's lines of requested reviews."""
CHARACTERS = 1000


class _Open(NamedTuple):
    """A request that is recorded and not answered yet."""

    request: AnyRequest
    reading: Reading
    body: AskedEntry
    asked: Recorded
    reservation: str | None


class Book:
    """One request's way through a trail; to be used in a ``with`` statement."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.resolved: ResolvedSpec | None = None
        self.reviewer: Reviewer = desk.reviewer.with_reasoning()
        self._opened: tuple[Trail, Store] | None = None
        self.folder = desk.runs / (desk.session or request_record.FOLDER)

    def __enter__(self) -> Book:
        """Open the session, if there is one; a folder of requested reviews is made when it is needed.

        Raises:
            UserError: there is no such session, it is closed, or it holds a price of its own.
            AuditDamage: its trail does not hold together.
        """
        if self.desk.session is None:
            if (self.folder / TRAIL).exists():
                hint = "--runs names another folder, --session asks in that session"
                raise UserError(f"'{self.folder}' is a session, not a folder of requested reviews", hint=hint)
            if self.reviewer.vendor == "person":
                raise UserError("a person reviews the gates of a session", hint="take another vendor")
            return self
        if self.desk.max_cost_usd is not None:
            raise UserError("what a review may cost is registered with the session", hint="leave --max-cost out")
        if not (self.folder / TRAIL).is_file():
            from sessions.run.run_layout import require_run

            require_run(self.folder)
        trail, store = Trail(self.folder / TRAIL, self.folder.name), Store(self.folder / STORE)
        self._opened = trail, store
        try:
            trail.verify_chain()
            request_record.refuse_closed(trail)
            self.resolved, _ = registered_spec(list(trail.iterate()), store)
        except BaseException:
            trail.close()
            raise
        every = self.resolved.spec.reviewers()
        # Of a panel, one who can be asked: a question is no gate, and takes no quorum.
        self.reviewer = next((one for one in every if one.asks_a_model and not one.is_plugin), every[0])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close and seal the trail."""
        if self._opened is not None:
            self._opened[0].close()

    @property
    def asks_a_model(self) -> bool:
        """Whether requests go over the wire."""
        return self.reviewer.asks_a_model and not self.reviewer.is_plugin

    @property
    def trail(self) -> Trail:
        """Return the trail the request is recorded in."""
        return self._open()[0]

    @property
    def store(self) -> Store:
        """Return the content store beside the trail."""
        return self._open()[1]

    def require_files(self, reading: Reading, for_rules: bool) -> None:
        """Refuse a request of which nothing can be shown.

        Raises:
            UserError: nothing was read.
        """
        if reading.files or (for_rules and not self.asks_a_model):
            return
        why = "; ".join(f"{one.name}: {one.why}" for one in reading.left_out[:5]) or "there are no files"
        raise UserError("nothing that was named can be read", hint=why)

    def answered_by_policy(
        self, request: QuestionRequest, reading: Reading, policy: PolicyAnswer, answer: QuestionAnswer
    ) -> Requested:
        """Record a question and the policy's answer to it; nobody is asked."""
        tier = tier_of(request.kind, request.stakes, request.has_plan)
        with self.trail.alone():
            opened = self._record(request, reading, tier, policy, None, None)
            return self._close(opened, "policy", answer)

    def carry_out(
        self,
        request: AnyRequest,
        reading: Reading,
        tier: Tier,
        policy: PolicyAnswer | None = None,
        material: Material | None = None,
        runs: Sequence[RunEvidence] = (),
    ) -> Requested:
        """Have a request answered: by what a model said to the same one before, by a model, or by rules.

        Raises:
            UserError: the reviewer cannot be asked: no key, no price, no package.
        """
        if not self.asks_a_model:
            return self._by_rule(request, reading, tier, policy, material, runs)
        effort = self._effort(tier)
        again = self._repeat(request, reading, tier, policy)
        return again or self._ask(self._model(), request, reading, tier, effort, policy)

    def _open(self) -> tuple[Trail, Store]:
        if self._opened is None:
            self._opened = request_record.open_workspace(self.folder)
        return self._opened

    def _effort(self, tier: Tier) -> Effort:
        effort: Effort = getattr(self.reviewer.effort, tier)
        if self.desk.max_cost_usd is None:
            return effort
        try:
            return Effort.model_validate(effort.model_dump() | {"max_cost_usd": self.desk.max_cost_usd})
        except ValidationError as error:
            raise UserError(f"--max-cost is {self.desk.max_cost_usd:g}; it must be above 0") from error

    def _model(self) -> Model:
        try:
            from reviews.reviewers.vendors.review_model import make_model
        except ModuleNotFoundError as error:
            hint = "pip install 'peergate[reviewers]'"
            raise UserError(f"package '{error.name}' is not installed", hint=hint) from error
        return make_model(self.reviewer, self.desk.environ)

    def _repeat(
        self, request: AnyRequest, reading: Reading, tier: Tier, policy: PolicyAnswer | None
    ) -> Requested | None:
        """Give the recorded answer to the same request again, if there is one."""
        if self._opened is None and not (self.folder / request_record.TRAIL).exists():
            return None
        same = request_record.same_digest(request, reading, self.reviewer)
        found = request_record.recorded_answer(self.trail.iterate("asked", "answered"), self.store, same, tier)
        if found is None:
            return None
        number, answer = found
        self.desk.say(f"the same was asked before: this is the recorded answer of answered/{number}, no new call")
        with self.trail.alone():
            opened = self._record(request, reading, tier, policy, None, None)
            return self._close(opened, "recorded", answer, same_as=number)

    def _by_rule(
        self,
        request: AnyRequest,
        reading: Reading,
        tier: Tier,
        policy: PolicyAnswer | None,
        material: Material | None,
        runs: Sequence[RunEvidence],
    ) -> Requested:
        answer: Answer | None = None
        error: PeergateError | None = None
        if isinstance(request, ReviewRequest) and material is not None:
            answer = review_by_rule(material, request.kind)
        elif isinstance(request, AdversarialRequest):
            answer = score(reading, runs)
        else:
            who, hint = "rules judge no free question", "--vendor and --model name somebody to ask"
            if self.resolved is not None:
                who, hint = (
                    f"the reviewer of this session is '{self.reviewer.vendor}'",
                    "ask a person, or outside of it",
                )
            error = ReviewerUnavailable(f"not judged: {who}", where=self.reviewer.vendor, hint=hint)
        with self.trail.alone():
            opened = self._record(request, reading, tier, policy, None, None)
            return self._close(opened, "checklist", answer, error)

    def _ask(
        self,
        model: Model,
        request: AnyRequest,
        reading: Reading,
        tier: Tier,
        effort: Effort,
        policy: PolicyAnswer | None,
    ) -> Requested:
        cap = model.cost_cap(effort)
        try:
            opened = self._record(request, reading, tier, policy, effort, cap)
        except BudgetExceeded as refused:
            with self.trail.alone():
                opened = self._record(request, reading, tier, policy, effort, None)
                return self._close(opened, "nobody", None, refused)
        self.desk.say(f"asking {model.name}, {tier} effort: up to {effort.timeout_s:.0f} s and {cap:.2f} USD")
        try:
            said = ask_model(model, request, reading, effort)
        except BaseException as error:
            # Ctrl-C, say: nobody knows whether the call is billed, so its whole cap counts.
            broken = ReviewerUnavailable(f"broken off: {type(error).__name__}", where=model.name)
            self._close(opened, "model", None, broken, usd=cap, usd_is_measured=False)
            raise
        error = None if said.error is None else self._as_error(said.error, said.exchange.statuses)
        by: AnsweredBy = "nobody" if isinstance(error, BudgetExceeded) else "model"
        return self._close(opened, by, said.value, error, **exchange_facts(self.store, said.exchange))

    def _as_error(self, error: ReviewerUnavailable, statuses: tuple[int | None, ...]) -> PeergateError:
        """Return why there is no answer; what was never sent was not paid for by the cap."""
        if statuses:
            return error
        hint = "ask about less" if self.desk.session else "--max-cost allows more; or ask about less"
        return BudgetExceeded(error.message, where=error.where, hint=hint)

    def _record(
        self,
        request: AnyRequest,
        reading: Reading,
        tier: Tier,
        policy: PolicyAnswer | None,
        effort: Effort | None,
        cap: float | None,
    ) -> _Open:
        """Record what is asked of whom, and reserve the money for it, both or nothing.

        Raises:
            BudgetExceeded: the cap does not fit into the session's share for reviews.
            UserError: the session was closed.
        """
        trail, store = self._open()
        prompt = store.put(instructions(request.mode).encode()) if effort else None
        name = f"{self.reviewer.vendor}:{self.reviewer.model}" if self.asks_a_model else self.reviewer.vendor
        with trail.alone():
            body = AskedEntry(
                number=request_record.next_number(trail),
                mode=request.mode,
                topic=plain(_topic(request), 200),
                request=store.put_value(request),
                read=store.put_value(reading),
                instructions=prompt,
                same=request_record.same_digest(request, reading, self.reviewer),
                policy=policy,
                policy_code=policy_digest() if policy else None,
                tier=tier,
                reviewer=name,
                max_cost_usd=effort.max_cost_usd if effort else None,
                timeout_s=effort.timeout_s if effort else None,
                by=self.desk.by,
            )
            asked = request_record.record_asked(trail, body)
            reservation = self._reserve(trail, body.number, cap) if cap is not None else None
        return _Open(request, reading, body, asked, reservation)

    def _reserve(self, trail: Trail, number: int, cap: float) -> str:
        if self.resolved is not None:
            return ledger.reserve_review(trail, self.resolved.spec.budget, STAGE, number, cap)
        key = f"review/{STAGE}.{number}"
        body = {"what": "reserve", "job": key, "party": "reviewer", "stage": STAGE, "usd": cap}
        trail.append("spend", f"reserve/{key}", body)
        return key

    def _close(
        self, opened: _Open, by: AnsweredBy, answer: Answer | None, error: PeergateError | None = None, **facts: Any
    ) -> Requested:
        """Record what came of a request and settle what it cost, both or nothing."""
        answer = without_secrets(answer, current()) if answer else None
        told = {
            "number": opened.body.number,
            "asked": opened.asked.digest,
            "by": by,
            "answer": self.store.put_value(answer) if answer else None,
            "error": plain(f"{type(error).__name__}: {error.message}", CHARACTERS) if error else "",
            "reservation": opened.reservation,
        }
        body = AnsweredEntry.model_validate(told | facts)
        with self.trail.alone():
            request_record.record_answered(self.trail, body)
            if body.reservation is not None:
                ledger.settle_review(self.trail, body.reservation, body.usd)
        return Requested(opened.request, opened.reading, opened.body, body, answer, error, self.folder)


def _topic(request: AnyRequest) -> str:
    if isinstance(request, QuestionRequest):
        return request.topic
    if isinstance(request, ReviewRequest):
        return f"{request.kind} of {', '.join(Path(path).name for path in request.paths)}"
    return f"claims of {Path(request.path).name}"
