"""One attempt of a stage: the entries about it, and the values they name in the content store."""

from __future__ import annotations

from functools import cached_property

from pydantic import ValidationError

from reviews.history.entry_index import EntryIndex
from reviews.trail.chain.envelope import RecordedEntry, as_entry_of
from reviews.trail.chain.store import Store
from specs.jobs.job_records import ExitRecord, JobOrder, Manifest
from specs.stages.base.metric import MetricSet
from specs.system.errors import AuditDamage
from specs.trail.gate_bodies import (
    ChecksEntry,
    DecisionEntry,
    GrantEntry,
    HumanAnswerEntry,
    MetricsEntry,
    PacketEntry,
    PlanEntry,
    SubmitEntry,
    VerdictEntry,
)
from specs.trail.session_bodies import ChallengeEntry, ExitEntry, LaunchEntry, LostJobEntry, SpendEntry, WitnessEntry
from specs.trail.verdict import CheckResult, Packet, Verdict


class Attempt:
    """One attempt of a stage; what is not recorded is None."""

    def __init__(self, entries: EntryIndex, stage: str, number: int) -> None:
        self._entries = entries
        self.stage = stage
        self.number = number

    @property
    def name(self) -> str:
        """``STAGE.NUMBER``."""
        return f"{self.stage}.{self.number}"

    @property
    def job(self) -> str:
        """The key of its job, ``SESSION.STAGE.NUMBER``."""
        return f"{self._entries.session}.{self.stage}.{self.number}"

    # ---- entries

    @cached_property
    def plan(self) -> RecordedEntry[PlanEntry] | None:
        """What the builder proposed."""
        return self._entries.find(PlanEntry, self.stage, self.number)

    @cached_property
    def grant(self) -> RecordedEntry[GrantEntry] | None:
        """The right to run its job."""
        return self._entries.find(GrantEntry, self.job)

    @cached_property
    def launch(self) -> RecordedEntry[LaunchEntry] | None:
        """The intent to run its job."""
        return self._entries.find(LaunchEntry, self.job)

    @cached_property
    def exit(self) -> RecordedEntry[ExitEntry] | None:
        """How its job ended and what it left."""
        return self._entries.find(ExitEntry, self.job)

    @cached_property
    def lost(self) -> RecordedEntry[LostJobEntry] | None:
        """The entry of a job that is gone without an exit record."""
        return self._entries.find(LostJobEntry, self.job)

    @property
    def end(self) -> RecordedEntry[ExitEntry] | RecordedEntry[LostJobEntry] | None:
        """The entry that ends its job."""
        return self.exit or self.lost

    @property
    def job_state(self) -> str:
        """How far its job is, in a word or two."""
        states = ((self.exit, "ended"), (self.lost, "lost"), (self.launch, "launched"))
        return next((state for entry, state in states if entry is not None), "not launched")

    @cached_property
    def settlement(self) -> SpendEntry | None:
        """What its job took in the end."""
        entry = self._entries.find_key(SpendEntry.settlement_key(self.job))
        return as_entry_of(entry, SpendEntry).body if entry else None

    @cached_property
    def challenge(self) -> RecordedEntry[ChallengeEntry] | None:
        """The intent to have a witness read its rows."""
        return self._entries.find(ChallengeEntry, self.stage, self.number)

    @cached_property
    def witness(self) -> RecordedEntry[WitnessEntry] | None:
        """How its witness ended."""
        return self._entries.find(WitnessEntry, self.stage, self.number)

    @cached_property
    def submission(self) -> RecordedEntry[SubmitEntry] | None:
        """What the builder claimed of it."""
        return self._entries.find(SubmitEntry, self.stage, self.number)

    @cached_property
    def metrics(self) -> RecordedEntry[MetricsEntry] | None:
        """What was computed from its rows."""
        return self._entries.find(MetricsEntry, self.stage, self.number)

    @cached_property
    def checks(self) -> RecordedEntry[ChecksEntry] | None:
        """The results of its checks."""
        return self._entries.find(ChecksEntry, self.stage, self.number)

    @cached_property
    def packet(self) -> RecordedEntry[PacketEntry] | None:
        """What its reviewer was shown."""
        return self._entries.find(PacketEntry, self.stage, self.number)

    @cached_property
    def verdict(self) -> RecordedEntry[VerdictEntry] | None:
        """What its reviewer said."""
        return self._entries.find(VerdictEntry, self.stage, self.number)

    @cached_property
    def decision(self) -> RecordedEntry[DecisionEntry] | None:
        """What its gate decided."""
        return self._entries.find(DecisionEntry, self.stage, self.number)

    @cached_property
    def answer(self) -> RecordedEntry[HumanAnswerEntry] | None:
        """What a person answered to the decision of its gate."""
        return self._entries.find(HumanAnswerEntry, DecisionEntry.key_of(self.stage, self.number))

    # ---- stored values

    @property
    def _store(self) -> Store:
        return self._entries.store

    @cached_property
    def order(self) -> JobOrder | None:
        """What its job was ordered to do; raises AuditDamage if this version cannot read it."""
        return read_order(self.launch, self._store)

    @cached_property
    def exit_record(self) -> ExitRecord | None:
        """How its job ended, as the job's wrapper recorded it."""
        return self._store.read(self.exit.body.exit, ExitRecord.model_validate_json) if self.exit else None

    @cached_property
    def manifest(self) -> Manifest | None:
        """What its job states of itself."""
        digest = self.exit.body.manifest if self.exit else None
        return self._store.read(digest, Manifest.model_validate_json) if digest else None

    @cached_property
    def metric_set(self) -> MetricSet | None:
        """The metrics computed from its rows."""
        digest = self.metrics.body.metrics if self.metrics else None
        return self._store.read(digest, MetricSet.model_validate_json) if digest else None

    @cached_property
    def check_results(self) -> tuple[CheckResult, ...]:
        """The results of its checks; empty before they ran."""
        values = self._store.get_value(self.checks.body.checks) if self.checks else ()
        return tuple(CheckResult.model_validate(value) for value in values)

    @cached_property
    def packet_value(self) -> Packet | None:
        """The packet its reviewer was shown."""
        return self._store.read(self.packet.body.packet, Packet.model_validate_json) if self.packet else None

    @cached_property
    def verdict_value(self) -> Verdict | None:
        """The verdict of its reviewer."""
        return self._store.read(self.verdict.body.verdict, Verdict.model_validate_json) if self.verdict else None


def read_order(
    launch: RecordedEntry[LaunchEntry] | RecordedEntry[ChallengeEntry] | None, store: Store
) -> JobOrder | None:
    """Return the order of a job or a witness from its entry; raises AuditDamage if this version cannot read it."""
    if launch is None:
        return None
    try:
        return store.read(launch.body.order, JobOrder.model_validate_json)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        message = f"'{'.'.join(map(str, first['loc']))}': {first['msg']}"
        raise AuditDamage(
            f"this version of Peergate cannot read the order of the job on record: {message}",
            where=launch.key,
            hint="use the version that recorded it; `peergate audit verify` still checks signatures, tree and digests",
        ) from error
