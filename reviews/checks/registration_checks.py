"""Is this still the experiment that was registered?"""

from __future__ import annotations

from reviews.checks.definition import CheckOutcome, CheckRegistry, join_names, manifest_of
from reviews.checks.measuring_code import measuring_code, measuring_files
from reviews.evidence.evidence import Evidence
from reviews.evidence.gather import evaluating
from specs.stages.base.metric import MetricSet
from specs.system.errors import EvidenceMissing

CHECKS = CheckRegistry()
WORKSPACE = "registration.workspace"
"""What it finds depends on other sessions, so it is not evidence of an attempt."""


@CHECKS.add(
    "registration.unchanged",
    "The spec equals the registered spec",
    source="analyses chosen after the results (preregistration, Nosek et al. 2018)",
)
def _check_registration(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    now = evidence.resolved.registration()
    if evidence.grant is None:
        raise EvidenceMissing("the attempt has no grant")
    for what, digest in (("the trail's first entry", evidence.registered), ("the grant", evidence.grant.registration)):
        if digest != now:
            return CheckOutcome("FAIL", f"the spec is {now}, {what} names {digest}", repairable=False)
    return CheckOutcome("PASS", f"spec, trail and grant name {now}")


@CHECKS.add(
    "registration.code",
    "The measuring code equals the registered code",
    source="a metric that was changed until the same data passed: 46.7 % runaway answers became 0 %",
)
def _check_code(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the code that measures and judges with the code registered before any data existed."""
    now = measuring_code(evidence.resolved)
    if evidence.measured_by is None:
        return CheckOutcome("NOT_APPLICABLE", "the session was registered without naming the code that measures")
    if evidence.measured_by == now:
        return CheckOutcome("PASS", f"metrics, checks and decision are made by the registered code {now}")
    then, files = evidence.measured_files, measuring_files(evidence.resolved)
    other = [name for name in sorted(then.keys() | files.keys()) if then.get(name) != files.get(name)] if then else []
    visible = tuple({"file": name, "registered": then.get(name, ""), "now": files.get(name, "")} for name in other)
    message = f"registered was the measuring code {evidence.measured_by}, this is {now}"
    message += f" ({join_names(other)})" if other else ""
    # A person decides: amend the registration, which a reviewer judges, or go back to the registered version.
    return CheckOutcome("FAIL", f"{message}; `peergate amend` puts it before a reviewer", float(len(other)), visible)


@CHECKS.add(
    "registration.split",
    "The held-out split equals the registered split",
    kinds=lambda kind: kind.only_measures,
    source="a swapped evaluation set",
)
def _check_split(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    reference = evidence.stage.inputs.get("items", "heldout")
    if reference != "heldout":
        return _data(evidence, reference)
    registered = evidence.resolved.spec.heldout.digest
    pinned = evidence.resolved.data_digests.get("heldout")
    for what, digest in (("pinned at the start", pinned), ("read by the job", evidence.heldout_digest)):
        if digest != registered:
            return CheckOutcome("FAIL", f"the registered split is {registered}, {what} was {digest}", repairable=False)
    return CheckOutcome("PASS", f"the registered split {registered} was read", figure=float(len(evidence.heldout)))


def _data(evidence: Evidence, reference: str) -> CheckOutcome:
    """Compare the items of a stage that does not read the split with the registered data file."""
    head, _, name = reference.partition(".")
    if head != "data":
        return CheckOutcome("NOT_APPLICABLE", f"the stage reads '{reference}', which no data file registers")
    registered, read = evidence.resolved.data_digests.get(name), manifest_of(evidence).inputs.get("items")
    if registered is None or read != registered:
        return CheckOutcome(
            "FAIL", f"the registered file '{name}' is {registered}, the job read {read}", repairable=False
        )
    return CheckOutcome("PASS", f"the registered file '{name}' {registered} was read")


@CHECKS.add(
    "registration.model",
    "The weights equal the pinned weights",
    source="an instruct checkpoint in place of the base model",
)
def _check_model(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the weights a stage began from with the digest that the spec pins, where it reads the model itself."""
    pinned = evidence.resolved.spec.model.digest
    if pinned is None or evidence.stage.inputs.get("model") != "model":
        return CheckOutcome("NOT_APPLICABLE", "the spec pins no weights for this stage")
    read = manifest_of(evidence).inputs.get("model")
    if read != pinned:
        return CheckOutcome("FAIL", f"the spec pins the weights {pinned}, the job read {read}", repairable=False)
    return CheckOutcome("PASS", f"the job read the pinned weights {pinned}")


@CHECKS.add(
    "registration.evaluations",
    "Evaluations of the held-out split are counted",
    kinds=lambda kind: kind.arm,
    source="many tries, one reported (multiplicity)",
    blocking=False,
)
def _check_evaluations(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    spec = evidence.resolved.spec
    planned = len(evaluating(spec))
    count = evidence.evaluations_of_heldout
    if count > planned:
        return CheckOutcome(
            "WARN", f"the held-out split was evaluated {count} times, {planned} were registered", float(count)
        )
    return CheckOutcome("PASS", f"evaluation {count} of {planned} registered ones", float(count))


@CHECKS.add(
    WORKSPACE,
    "No other session of the workspace evaluated the registered split",
    kinds=lambda kind: kind.only_measures,
    source="sessions on one split until one shows a gain (reuse: Dwork et al. 2015, doi:10.1126/science.aaa9375)",
    blocking=False,
)
def _check_workspace(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Count earlier looks of other sessions at the same split, as the trail noted them when the job ended.

    A new question has an own split, or a test that allows for all of these.
    """
    used = evidence.heldout_elsewhere
    if used is None:
        return CheckOutcome("NOT_APPLICABLE", "not counted: the stage reads no registered split")
    unread = f"; {used.unread} sessions could not be read" if used.unread else ""
    if used.seeds:
        unread += f"; {used.seeds} sessions of the same registered seeds are not counted"
    if used.evaluations:
        message = f"the split, or half of it, was evaluated {used.evaluations} times before, by {used.sessions} other "
        message += "sessions of the workspace"
        message += "; a p-value of this one allows for none of them: take a new split for what was chosen after a look"
        return CheckOutcome("WARN", f"{message}{unread}", float(used.evaluations))
    return CheckOutcome("PASS", f"no other session of the workspace evaluated the split{unread}", 0.0)


@CHECKS.add(
    "registration.attempts", "Every attempt of the stage is on record", source="failed attempts left out of the report"
)
def _check_attempts(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    numbers = [record["attempt"] for record in evidence.attempts]
    if numbers != list(range(1, evidence.attempt + 1)):
        return CheckOutcome(
            "FAIL", f"attempts {numbers} are on record, this is attempt {evidence.attempt}", repairable=False
        )
    return CheckOutcome("PASS", f"all {len(numbers)} attempts are on record", float(len(numbers)))
