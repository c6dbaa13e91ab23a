"""Carries a requested review out: records it, reserves its money, has it answered, and settles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from reviews.gate.reviewer import Looking, LookupAnswer
from reviews.history.history import History
from reviews.requests import request_record
from reviews.requests.ask_policy import policy_digest
from reviews.requests.kept_texts import KeptTexts, as_file
from reviews.requests.model_request import ask_model, instructions
from reviews.requests.rules.file_review import review_by_rule
from reviews.requests.rules.rule_findings import RuleMaterial
from reviews.requests.rules.scorecard import score
from reviews.requests.run_evidence import RunEvidence
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.trail import Trail
from sessions.pages.report.consult_context import AnyRequest, ConsultContext, RequestOutcome
from sessions.requests.reviewer_call import exchange_facts
from sessions.run.money import ledger
from sessions.run.run_layout import STORE, TRAIL, require_run
from specs.session.session_spec import ResolvedSpec
from specs.system.digests import digest_bytes
from specs.system.errors import BudgetExceeded, PeergateError, ReviewerUnavailable, UserError
from specs.system.extras import install_hint
from specs.system.masking import current, without_secrets
from specs.system.text import plain
from specs.system.vendors.parties import ReviewerSpec, ReviewLimits
from specs.trail.gate_bodies import LookupEntry
from specs.trail.requested_review import (
    LOOKS,
    AdversarialRequest,
    Answer,
    AnsweredBy,
    AnswerEntry,
    DraftRequest,
    PolicyAnswer,
    QuestionEntry,
    QuestionRequest,
    ReadFile,
    RequestReading,
    ReviewRequest,
    Tier,
)
from specs.trail.session_bodies import SpendEntry

if TYPE_CHECKING:  # Imports an HTTP client, which only a request to a model needs.
    from reviews.reviewers.vendors.looking import Lookups
    from reviews.reviewers.vendors.review_model import ReviewModel

STAGE = "requests"
"""The stage in the ledger's lines of requested reviews."""
CHARACTERS = 1000


class RequestCase(NamedTuple):
    """A request with everything that answering it needs."""

    request: AnyRequest
    reading: RequestReading
    tier: Tier
    policy: PolicyAnswer | None = None
    material: RuleMaterial | None = None
    """What rules look at in a review of files."""
    runs: Sequence[RunEvidence] = ()
    problems: Callable[[str], str] = lambda _: ""
    """Says what is wrong with a drafted spec."""
    beside: Mapping[str, str] = {}
    """Texts that a model may look into with tools, by name."""

    @property
    def digests(self) -> dict[str, str]:
        """The digests of these texts."""
        return {name: digest_bytes(text.encode()) for name, text in self.beside.items()}


class _Open(NamedTuple):
    """A request that is recorded and not answered yet."""

    case: RequestCase
    body: QuestionEntry
    entry: RecordedEntry
    reservation: str | None


class Book:
    """One request's way through a trail; to be used in a ``with`` statement."""

    def __init__(self, desk: ConsultContext) -> None:
        self.desk = desk
        self.resolved: ResolvedSpec | None = None
        self.reviewer: ReviewerSpec = desk.reviewer.with_reasoning()
        self._opened: tuple[Trail, Store] | None = None
        self.folder = desk.runs / (desk.session or request_record.FOLDER)

    def __enter__(self) -> Book:
        """Open the session, if there is one; a folder of requested reviews is made when it is needed.

        Raises:
            UserError: there is no such session, it is closed, or a price is given for it.
            AuditDamage: its trail is damaged.
        """
        if self.desk.session is None:
            if (self.folder / TRAIL).exists():
                hint = "--runs names another folder, --session asks in that session"
                raise UserError(f"'{self.folder}' is a session, not a folder of requested reviews", hint=hint)
            if self.reviewer.vendor == "person":
                raise UserError("a person reviews the gates of a session", hint="use another vendor")
            return self
        if self.desk.max_cost_usd is not None:
            raise UserError("the cost limit of a review is registered with the session", hint="omit --max-cost")
        if not (self.folder / TRAIL).is_file():
            require_run(self.folder)
        trail, store = Trail(self.folder / TRAIL, self.folder.name), Store(self.folder / STORE)
        self._opened = trail, store
        try:
            trail.verify_chain()
            request_record.refuse_closed(trail)
            self.resolved = History(trail.iterate(), store).resolved
        except BaseException:
            trail.close()
            raise
        every = self.resolved.spec.reviewers()
        # Of a panel, one member that can be asked: a question is not a gate and needs no quorum.
        self.reviewer = next(
            (reviewer for reviewer in every if reviewer.asks_a_model and not reviewer.is_plugin), every[0]
        )
        return self

    def __exit__(self, *_: object) -> None:
        """Close and seal the trail."""
        if self._opened is not None:
            self._opened[0].close()

    @property
    def asks_a_model(self) -> bool:
        """Return whether requests go over the wire."""
        return self.reviewer.asks_a_model and not self.reviewer.is_plugin

    @property
    def looks(self) -> int:
        """In how many answers the reviewer may look into more than it is shown."""
        # APIs of chat take no schema together with tools.
        return (self.reviewer.looks or 0) if self.asks_a_model and self.reviewer.api == "responses" else 0

    @property
    def trail(self) -> Trail:
        """The trail that records the request."""
        return self._open()[0]

    @property
    def store(self) -> Store:
        """The content store next to the trail."""
        return self._open()[1]

    def carry_out(self, case: RequestCase) -> RequestOutcome:
        """Answer a request by its recorded answer, a model or rules; UserError without a key, price or package."""
        if not self.asks_a_model:
            return self._by_rule(case)
        effort = self._effort(case.tier)
        return self._repeat(case) or self._ask(self._model(), case, effort)

    def _open(self) -> tuple[Trail, Store]:
        if self._opened is None:
            self._opened = request_record.open_workspace(self.folder)
        return self._opened

    def _effort(self, tier: Tier) -> ReviewLimits:
        effort: ReviewLimits = getattr(self.reviewer.effort, tier)
        if self.desk.max_cost_usd is None:
            return effort
        try:
            return ReviewLimits.model_validate(effort.model_dump() | {"max_cost_usd": self.desk.max_cost_usd})
        except ValidationError as error:
            raise UserError(f"--max-cost is {self.desk.max_cost_usd:g}; it must be above 0") from error

    def _model(self) -> ReviewModel:
        try:
            from reviews.reviewers.vendors.review_model import make_model
        except ModuleNotFoundError as error:
            hint = install_hint("reviewers")
            raise UserError(f"package '{error.name}' is not installed", hint=hint) from error
        return make_model(self.reviewer, self.desk.environ)

    def _repeat(self, case: RequestCase) -> RequestOutcome | None:
        """Return the recorded answer to the same request, if there is one."""
        if self._opened is None and not (self.folder / request_record.TRAIL).exists():
            return None
        same = request_record.same_digest(case.request, case.reading, self.reviewer, case.digests)
        pair = request_record.recorded_answer(self.trail.iterate("question", "answer"), self.store, same, case.tier)
        if pair is None:
            return None
        number, answer = pair
        self.desk.say(f"the same was asked before: this is the recorded answer of answer/{number}, no new call")
        return self.record_answer(case, "recorded", answer, same_as=number)

    def _by_rule(self, case: RequestCase) -> RequestOutcome:
        if isinstance(case.request, ReviewRequest) and case.material is not None:
            return self.record_answer(case, "checklist", review_by_rule(case.material, case.request.kind))
        if isinstance(case.request, AdversarialRequest):
            return self.record_answer(case, "checklist", score(case.reading, case.runs))
        who, hint = "rules judge no free question", "--vendor and --model name someone to ask"
        if self.resolved is not None:
            who, hint = f"the reviewer of this session is '{self.reviewer.vendor}'", "ask a person, or outside of it"
        error = ReviewerUnavailable(f"not judged: {who}", where=self.reviewer.vendor, hint=hint)
        return self.record_answer(case, "checklist", None, error)

    def _ask(self, model: ReviewModel, case: RequestCase, effort: ReviewLimits) -> RequestOutcome:
        cap = model.cost_cap(effort)
        try:
            opened = self._record(case, effort, cap)
        except BudgetExceeded as refused:
            return self.record_answer(case, "nobody", None, refused, effort)
        self.desk.say(f"asking {model.name}, {case.tier} effort: up to {effort.timeout_s:.0f} s and {cap:.2f} USD")
        try:
            lookups, answers = self._lookups(opened)
            statement = ask_model(
                model, case.request, case.reading, effort, self._waits, case.problems, lookups, answers
            )
        except BaseException as error:
            # After Ctrl-C, for example, no one knows whether the call is billed, so its whole cap counts.
            broken = ReviewerUnavailable(f"interrupted: {type(error).__name__}", where=model.name)
            self._close(opened, "model", None, broken, usd=cap, usd_is_measured=False)
            raise
        error = None if statement.error is None else self._as_error(statement.error, statement.exchange.statuses)
        by: AnsweredBy = "nobody" if isinstance(error, BudgetExceeded) else "model"
        return self._close(opened, by, statement.value, error, **exchange_facts(self.store, statement.exchange))

    def _lookups(self, opened: _Open) -> tuple[Lookups | None, Sequence[ReadFile]]:
        """Return what the reviewer may look into, and its answers, which grow as it does."""
        answers: list[ReadFile] = []
        body = opened.body
        if body.readable is None:
            return None, answers
        # Imports judges.
        from reviews.reviewers.vendors.looking import Lookups
        from sessions.requests.lookups import carry_out

        texts = KeptTexts(body, self.store)
        facts = {"stage": LOOKS, "attempt": body.number, "packet": body.read, "reviewer": body.reviewer}

        def look(tool: str, arguments: str, most: int) -> LookupAnswer:
            self.desk.say(f"{body.reviewer} looks something up: {tool}")
            with self.trail.alone():
                request_record.refuse_closed(self.trail)
                at = LookupEntry.key_of(f"question/{body.number}/")
                result = carry_out(texts, self.trail, self.store, at, facts, tool, arguments, most)
            answers.append(as_file(len(answers) + 1, digest_bytes(result.text.encode()), result.text))
            return result

        looking = Looking(tuple(texts.all_names), look, texts.tools)
        return Lookups(looking, self.looks), answers

    def _waits(self, seconds: float, why: str, usd: float) -> None:
        self.desk.say(f"{why}: it is asked again in {seconds:.0f} s")
        self.desk.sleep(seconds)

    def _as_error(self, error: ReviewerUnavailable, statuses: tuple[int | None, ...]) -> PeergateError:
        """Return why the request has no answer; a request that was never sent exceeded the cap."""
        if statuses:
            return error
        hint = "ask about less" if self.desk.session else "--max-cost allows more; or ask about less"
        return BudgetExceeded(error.message, where=error.where, hint=hint)

    def record_answer(
        self,
        case: RequestCase,
        by: AnsweredBy,
        answer: Answer | None,
        error: PeergateError | None = None,
        effort: ReviewLimits | None = None,
        **facts: Any,
    ) -> RequestOutcome:
        """Record a request that costs nothing, and its answer."""
        with self.trail.alone():
            return self._close(self._record(case, effort), by, answer, error, **facts)

    def _record(self, case: RequestCase, effort: ReviewLimits | None = None, cap: float | None = None) -> _Open:
        """Record the request and who is asked, and reserve the money for it, both or nothing.

        Raises:
            BudgetExceeded: the cap does not fit into the session's share for reviews.
            UserError: the session was closed.
        """
        trail, store = self._open()
        request, policy = case.request, case.policy
        prompt = store.put(instructions(request.mode).encode()) if effort else None
        remaining = {name: store.put(text.encode()) for name, text in case.beside.items()}
        name = f"{self.reviewer.vendor}:{self.reviewer.model}" if self.asks_a_model else self.reviewer.vendor
        with trail.alone():
            body = QuestionEntry(
                number=request_record.next_number(trail),
                mode=request.mode,
                topic=plain(_topic(request), 200),
                request=store.put_value(request),
                read=store.put_value(case.reading),
                instructions=prompt,
                same=request_record.same_digest(request, case.reading, self.reviewer, case.digests),
                policy=policy,
                policy_code=policy_digest() if policy else None,
                tier=case.tier,
                reviewer=name,
                max_cost_usd=effort.max_cost_usd if effort else None,
                timeout_s=effort.timeout_s if effort else None,
                by=self.desk.by,
                readable=store.put_value(remaining) if remaining else None,
            )
            requested_value = request_record.record_question(trail, body)
            reservation = self._reserve(trail, body.number, cap) if cap is not None else None
        return _Open(case, body, requested_value, reservation)

    def _reserve(self, trail: Trail, number: int, cap: float) -> str:
        if self.resolved is not None:
            return ledger.reserve_review(trail, self.resolved.spec.budget, STAGE, number, cap)
        key = f"review/{STAGE}.{number}"
        trail.append(SpendEntry(what="reserve", job=key, party="reviewer", stage=STAGE, usd=cap))
        return key

    def _close(
        self, opened: _Open, by: AnsweredBy, answer: Answer | None, error: PeergateError | None = None, **facts: Any
    ) -> RequestOutcome:
        """Record the answer or error of a request and settle its cost, both or nothing."""
        answer = without_secrets(answer, current()) if answer else None
        stated = {
            "number": opened.body.number,
            "question": opened.entry.digest,
            "by": by,
            "answer": self.store.put_value(answer) if answer else None,
            "error": plain(f"{type(error).__name__}: {error.message}", CHARACTERS) if error else "",
            "reservation": opened.reservation,
        }
        body = AnswerEntry.model_validate(stated | facts)
        with self.trail.alone():
            request_record.record_answer(self.trail, body)
            if body.reservation is not None:
                ledger.settle(self.trail, body.reservation, body.usd)
        looked = tuple(self._describe_lookup(value.entry) for value in body.looked)
        case = opened.case
        return RequestOutcome(case.request, case.reading, opened.body, body, answer, error, self.folder, looked=looked)

    def _describe_lookup(self, entry: str) -> str:
        """Return what a ``look`` entry asked for."""
        result = self.trail.find(entry, LookupEntry)
        assert result is not None, "it was recorded before its answer was sent"
        return f"{result.body.tool} {self.store.get(result.body.arguments).decode()}"


def _topic(request: AnyRequest) -> str:
    if isinstance(request, QuestionRequest):
        return request.topic
    if isinstance(request, DraftRequest):
        return f"a spec for: {request.goal}"
    if isinstance(request, ReviewRequest):
        return f"{request.kind} of {', '.join(Path(path).name for path in request.paths)}"
    return f"claims of {Path(request.path).name}"
