"""Metrics and checks of critics, revisions, preferences: healthy evidence passes, each flaw is found by its check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.evidence.evidence import Evidence
from reviews.gate.measurer import measure
from reviews.stages.critique import critic_checks, pair_checks
from reviews.stages.critique.measure import constitution_of
from specs.session.constitution import WorkedRevision
from specs.stages.base.artifacts import Example, Item
from specs.stages.critique.parameters import CritiqueInstructionsParameters, ReviseParameters
from specs.stages.metric_catalog import METRICS, metrics_of
from specs.stages.registry import built_in_kinds
from specs.system.digests import digest_bytes
from specs.system.errors import EvidenceMissing
from testing.factories.critic_evidence import (
    BEST_OF_N,
    JUDGED,
    KINDS,
    STAGES,
    N,
    alternating,
    candidates,
    chains,
    critic_evidence,
    edited,
    given_examples,
    labelled_sample,
)
from testing.factories.judged_evidence import results_of, values_of
from testing.fixtures.critic_jobs import TOPICS, instructions
from training.rules.rubric_prompts import load_shipped_rubric

# Pairs by a verifier are judged in test_verified_pairs.
OWN = tuple(check for check in (*critic_checks.CHECKS, *pair_checks.CHECKS) if check.kinds != ("best_of_n_verified",))


def of_kind(folder: Path, kind: str) -> Evidence:
    """Return healthy evidence of a kind with all that it can have: revisions are judged."""
    return critic_evidence(folder, kind, stage=JUDGED if kind == "revise" else None)


def with_thresholds(evidence: Evidence, **thresholds: float) -> Evidence:
    spec = evidence.resolved.spec
    result = spec.thresholds.model_copy(update=thresholds)
    return replace(
        evidence, resolved=evidence.resolved.model_copy(update={"spec": spec.model_copy(update={"thresholds": result})})
    )


@pytest.mark.parametrize("kind", KINDS)
def test_healthy_evidence_passes_every_check(tmp_path: Path, kind: str) -> None:
    evidence = critic_evidence(tmp_path, kind)
    # Taken from the changed evidence, so that the grant fits.
    checks = results_of(evidence)
    closed = {id: check.detail for id, check in checks.items() if check.status not in ("PASS", "NOT_APPLICABLE")}
    assert closed == {}
    assert {check.id for check in OWN if kind in check.kind_names()} <= set(checks)


def test_revisions_with_a_judge_pass_every_check_and_without_one_are_asked_nothing_about_it(tmp_path: Path) -> None:
    (tmp_path / "judged").mkdir()
    (tmp_path / "plain").mkdir()
    judged, plain = (
        results_of(make)
        for make in (of_kind(tmp_path / "judged", "revise"), critic_evidence(tmp_path / "plain", "revise"))
    )
    ids = {check.id for check in critic_checks.CHECKS if "revise" in check.kind_names()}
    assert len(ids) == 5 and {judged[id].status for id in ids} == {"PASS"}
    assert {plain[id].status for id in ids} == {"NOT_APPLICABLE"}
    assert {id: check.detail for id, check in judged.items() if check.status not in ("PASS", "NOT_APPLICABLE")} == {}


@pytest.mark.parametrize("kind", KINDS)
def test_every_registered_metric_is_measured(tmp_path: Path, kind: str) -> None:
    measured = measure(of_kind(tmp_path, kind)).metrics
    assert sorted(measured) == sorted(metrics_of(kind))  # pyright: ignore[reportArgumentType]
    assert all(METRICS[id].unit == metric.unit for id, metric in measured.items())


def test_no_other_area_has_a_metric_of_the_same_name() -> None:
    assert [metric.id for kind in built_in_kinds() for metric in kind.metrics if METRICS[metric.id] is not metric] == []


@pytest.mark.parametrize("kind", KINDS)
def test_without_what_the_job_left_nothing_passes_that_reads_it(tmp_path: Path, kind: str) -> None:
    bare = replace(of_kind(tmp_path, kind), manifest=None, exit=None, outputs={}, output_digests={})
    checks = results_of(bare)
    assert {checks[check.id].status for check in OWN if kind in check.kind_names()} == {"BLOCKED"}


def teach_heldout(path: Path) -> Evidence:
    """A constitution whose first principle has a held-out prompt as its worked example."""
    evidence = critic_evidence(path, "revise")
    (heldout, *_), rules = evidence.heldout, constitution_of(evidence)[0]
    worked = WorkedRevision(instruction=heldout.prompt, draft="A draft.", critique="Dull.", revision="Another.")
    principles = tuple(rule.model_copy(update={"examples": (worked,)}) for rule in rules.principles)
    file = path / "taught.yaml"
    file.write_text(rules.model_copy(update={"principles": principles}).model_dump_json(), encoding="utf-8")
    return replace(evidence, inputs=dict(evidence.inputs) | {"constitution": file})


def claimed_good(row: dict[str, Any]) -> None:
    row["plain"] |= {"good": True, "confident": True}
    row["swapped"] |= {"good": True, "confident": True}
    row["accepted"] = True


def turned_label(row: dict[str, Any]) -> None:
    row["label"] = "good" if row["label"] == "bad" else "bad"


def cut_last(evidence: Evidence, output: str) -> Evidence:
    path = evidence.outputs[output]
    path.write_text("".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[:-1]), encoding="utf-8")
    return evidence


def only_a(_: int) -> tuple[float, float]:
    """A critic that answers A whatever A means."""
    return 3.0, -3.0


def one_label(place: int) -> tuple[float, float]:
    """A critic that finds everything good."""
    return 2.0, 2.0


def long_first(n: int, place: int) -> str:
    extra = " It goes on and on about it in many words." if place == 0 else ""
    return f"{TOPICS[n]} is the answer {place}.{extra}"


def as_principle(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda row: row["rounds"][0].update(principle=name)


def everywhere() -> tuple[Item, ...]:
    """The instructions, judged by an ending that the originals have."""
    update = {"kind": "ending", "constraint": {"phrase": "everywhere."}}
    return tuple(item.model_copy(update=update) for item in instructions(N))


def capital(n: int, place: int) -> str:
    return f"{TOPICS[n].title()} has {n + 3 + place} sides, and much of it is at home."


def with_comma(n: int, place: int) -> str:
    return f"Some say, that {TOPICS[n]} has {n + 3} sides and is found{'' if place else ','} everywhere."


def about_the_request(n: int, place: int) -> str:
    return f"I am ready to help. What is your next question{'' if place else ' then'}?"


def right_when_dropped() -> list[Example]:
    """Examples in capitals, which the critic keeps, and as the task asks for, which it drops, in turn."""
    rows = [example for _ in range(4) for example in given_examples()]
    return [
        example.model_copy(update={"sample": place, "completion": f"{('This', 'this')[place % 2]} is all there is."})
        for place, example in enumerate(rows)
    ]


Make = Callable[[Path], Evidence]
FLAWS: dict[str, tuple[str, Make]] = {
    "a critique written as good and confident": ("critics.follows",
     lambda path: edited(critic_evidence(path, "critique_instructions"), "rows", 1, claimed_good)),
    "a margin of 1.0 by default": (
        "critics.follows",
        lambda path: edited(
            critic_evidence(path, "critique_responses"), "rows", 0, lambda row: row["plain"].update(margin=1.0)
        ),
    ),
    "a preference no one computed": (
        "critics.follows",
        lambda path: edited(
            critic_evidence(path, "best_of_n"), "comparisons", 0, lambda row: row.update(preferred="second")
        ),
    ),
    "another text than the one that was scored": (
        "critics.prompts",
        lambda path: edited(
            critic_evidence(path, "critique_instructions"), "rows", 0, lambda row: row.update(instruction="Sing.")
        ),
    ),
    "another rubric": (
        "critics.prompts",
        lambda path: edited(
            critic_evidence(path, "best_of_n"), "comparisons", 0, lambda row: row.update(rubric=digest_bytes(b"mine"))
        ),
    ),
    "another part of the response was shown": (
        "critics.prompts",
        lambda path: edited(
            critic_evidence(path, "critique_responses"), "rows", 0, lambda row: row.update(shown_response="Fine.")
        ),
    ),
    "a row left out": ("critics.complete",
     lambda path: cut_last(critic_evidence(path, "critique_instructions"), "rows")),
    "a response left out": ("critics.complete", lambda path: cut_last(critic_evidence(path, "best_of_n"), "rows")),
    "a comparison left out": ("critics.complete",
     lambda path: cut_last(critic_evidence(path, "best_of_n"), "comparisons")),
    "something kept that was not accepted": (
        "critics.accepted",
        lambda path: edited(
            critic_evidence(path, "critique_responses"), "accepted", 0, lambda row: row.update(completion="Mine.")
        ),
    ),
    "a critic that finds everything good": ("critics.calibration",
     lambda path: critic_evidence(path, "critique_instructions", labels=one_label)),
    "a judge that never decides": ("critics.calibration",
     lambda path: critic_evidence(path, "best_of_n", labels=lambda place: (0.2, 0.2))),
    "a labelled sample of ten": ("critics.calibration",
     lambda path: critic_evidence(path, "best_of_n", sample=labelled_sample("best_of_n", 10))),
    "labelled items twice": (
        "critics.calibration",
        lambda path: critic_evidence(
            path,
            "critique_instructions",
            sample=[*labelled_sample("critique_instructions"), *labelled_sample("critique_instructions")],
        ),
    ),
    "worked examples as labelled items": (
        "critics.calibration",
        lambda path: critic_evidence(
            path,
            "critique_instructions",
            sample=[
                item.model_copy(update={"prompt": load_shipped_rubric("instruction").examples[0].instruction})
                if n == 0
                else item
                for n, item in enumerate(labelled_sample("critique_instructions"))
            ],
        ),
    ),
    "a critic that likes the label A": ("critics.swap",
     lambda path: critic_evidence(path, "critique_responses", signed=only_a)),
    "a judge that likes the first place": ("critics.swap",
     lambda path: critic_evidence(path, "best_of_n", signed=only_a)),
    "a chain left out": ("revise.complete", lambda path: cut_last(critic_evidence(path, "revise"), "rows")),
    "chains of one round": (
        "revise.complete",
        lambda path: replace(
            critic_evidence(path, "revise", rows=chains(ReviseParameters(revisions=1))),
            parameters=STAGES["revise"].parameters.model_dump(mode="json"),
        ),
    ),
    "a refusal without its mark": (
        "revise.follows",
        lambda path: edited(
            critic_evidence(path, "revise"),
            "rows",
            0,
            lambda row: row["rounds"][0].update(revision="I cannot say anything about this."),
        ),
    ),
    "a final text no one wrote": ("revise.follows",
     lambda path: edited(critic_evidence(path, "revise"), "rows", 0, lambda row: row.update(final="Mine, then."))),
    "another principle": ("revise.principles",
     lambda path: edited(critic_evidence(path, "revise"), "rows", 0, as_principle("made-up"))),
    "another constitution": (
        "revise.principles",
        lambda path: edited(
            critic_evidence(path, "revise"), "rows", 0, lambda row: row.update(constitution=digest_bytes(b"mine"))
        ),
    ),
    "a held-out prompt as a worked example": ("revise.overlap", teach_heldout),
    "another critique than the one the revision was made from": (
        "revise.prompts",
        lambda path: edited(
            critic_evidence(path, "revise"), "rows", 0, lambda row: row["rounds"][1].update(critique="All is well.")
        ),
    ),
    "an edited example": ("revise.examples",
     lambda path: edited(critic_evidence(path, "revise"), "examples", 0, lambda row: row.update(completion="Mine."))),
    "an edited pair": (
        "pairs.derived",
        lambda path: edited(
            critic_evidence(path, "best_of_n"), "preferences", 0, lambda row: row.update(chosen="Mine is best.")
        ),
    ),
    "a pair of equal texts": (
        "pairs.whole",
        lambda path: edited(
            critic_evidence(path, "best_of_n"), "preferences", 0, lambda row: row.update(chosen=f" {row['rejected']}")
        ),
    ),
    "a line end that became two characters": (
        "pairs.whole",
        lambda path: edited(
            critic_evidence(path, "revise"), "preferences", 0, lambda row: row.update(chosen="One.\\nTwo.")
        ),
    ),
    "no pair at all": ("pairs.whole",
     lambda path: critic_evidence(path, "revise", rows=chains(change=lambda n, place: "No."))),
    "a group on both sides": (
        "pairs.split",
        lambda path: edited(
            critic_evidence(path, "best_of_n"),
            "preferences",
            0,
            lambda row: row.update(split="train" if row["split"] == "validation" else "validation"),
        ),
    ),
    "revisions that turn right answers wrong": ("revise.gain",
     lambda path: critic_evidence(path, "revise", data={"asked": everywhere()})),
    "revisions that help by no verdict": ("pairs.direction",
     lambda path: critic_evidence(path, "revise", rows=chains(change=capital))),
    "copies but for a comma": ("pairs.copies",
     lambda path: critic_evidence(path, "revise", rows=chains(change=with_comma))),
    "revisions that talk about the request": ("pairs.answers",
     lambda path: critic_evidence(path, "revise", rows=chains(change=about_the_request))),
    "a critic that keeps what the task calls wrong": ("critics.selection",
     lambda path: critic_evidence(path, "critique_responses", examples=right_when_dropped())),
    "a pair on no side": ("pairs.split",
     lambda path: edited(critic_evidence(path, "best_of_n"), "preferences", 0, lambda row: row.update(split=None))),
    "chosen responses that are long": ("pairs.length",
     lambda path: critic_evidence(path, "best_of_n", signed=lambda place: (2.0, 2.0), rows=candidates(long_first))),
}  # fmt: skip


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flaw_is_found_by_its_check(tmp_path: Path, flaw: str) -> None:
    check, make = FLAWS[flaw]
    assert results_of(make(tmp_path))[check].status == "FAIL"


def test_every_check_has_a_flaw_that_it_finds() -> None:
    assert {check.id for check in OWN} == {check for check, _ in FLAWS.values()}


def a_third_turned(path: Path) -> Evidence:
    return critic_evidence(
        path, "critique_instructions", signed=lambda place: only_a(0) if place < 2 else alternating(place)
    )


def four_wrong(path: Path) -> Evidence:
    """28 of 32 agree; with labels and verdicts half and half kappa is 0.75."""
    return critic_evidence(path, "critique_instructions", labels=lambda place: alternating(place + (place < 4)))


def healthy_judge(path: Path) -> Evidence:
    return critic_evidence(path, "best_of_n")


@pytest.mark.parametrize(
    ("check", "threshold", "at", "past", "make"),
    [
        ("critics.swap", "swap_inconsistency", 0.34, 0.33, a_third_turned),
        ("critics.calibration", "labelled_items", 32, 33, healthy_judge),
        ("critics.calibration", "critic_kappa", 0.75, 0.76, four_wrong),
    ],
)
def test_a_check_speaks_past_its_threshold_and_not_at_it(
    tmp_path: Path, check: str, threshold: str, at: float, past: float, make: Make
) -> None:
    evidence = make(tmp_path)
    assert results_of(with_thresholds(evidence, **{threshold: at}))[check].status == "PASS"
    assert results_of(with_thresholds(evidence, **{threshold: past}))[check].status == "FAIL"


def test_the_length_check_speaks_past_its_threshold_and_not_at_it(tmp_path: Path) -> None:
    evidence = critic_evidence(tmp_path, "best_of_n", signed=lambda place: (2.0, 2.0), rows=candidates(long_first))
    bias = values_of(evidence)["pairs_length_bias"]
    assert bias > 0.25
    assert results_of(with_thresholds(evidence, length_bias=bias + 1e-6))["pairs.length"].status == "PASS"
    assert results_of(with_thresholds(evidence, length_bias=bias - 1e-6))["pairs.length"].status == "FAIL"


@pytest.mark.parametrize("kind", ["critique_instructions", "critique_responses", "best_of_n"])
def test_without_a_labelled_sample_nothing_is_measured_and_the_gate_is_blocked(tmp_path: Path, kind: str) -> None:
    evidence = critic_evidence(tmp_path, kind)
    evidence.inputs.pop("calibration")
    with pytest.raises(EvidenceMissing, match="the labelled sample are missing"):
        measure(evidence)
    check = results_of(evidence)["critics.calibration"]
    assert (check.status, check.blocking) == ("BLOCKED", True)


def test_labels_come_from_the_registered_sample_and_not_from_the_rows(tmp_path: Path) -> None:
    evidence = edited(critic_evidence(tmp_path, "critique_instructions"), "calibration", 0, turned_label)
    with pytest.raises(EvidenceMissing, match="do not match the labelled sample"):
        measure(evidence)
    assert results_of(evidence)["critics.calibration"].status == "BLOCKED"


def test_rows_that_contradict_themselves_measure_nothing(tmp_path: Path) -> None:
    evidence = edited(critic_evidence(tmp_path, "critique_instructions"), "rows", 1, claimed_good)
    with pytest.raises(EvidenceMissing, match=r"line 2 contradicts itself: plain: good True"):
        measure(evidence)


def test_a_critique_without_log_probabilities_is_no_row(tmp_path: Path) -> None:
    evidence = edited(
        critic_evidence(tmp_path, "critique_instructions"), "rows", 1, lambda row: row["plain"].pop("scores")
    )
    with pytest.raises(EvidenceMissing, match="is not a CritiqueRow"):
        measure(evidence)


def test_critic_metrics_are_those_of_the_rows(tmp_path: Path) -> None:
    values = measure(critic_evidence(tmp_path, "critique_instructions")).metrics
    assert values["instructions_acceptance_rate"].value == 0.5 and values["instructions_acceptance_rate"].n == 6
    assert values["instructions_kappa"].value == 1 and values["instructions_kappa"].interval is not None
    # All 32 agree, and the interval is still no point.
    assert 0.7 < values["instructions_kappa"].interval[0] < 0.85
    assert values["instructions_median_margin"].value == pytest.approx(1.5)
    assert values["instructions_swap_inconsistency"].value == 0


def test_the_mean_of_both_orders_can_accept_what_either_order_alone_does_not(tmp_path: Path) -> None:
    """A liking for A adds 2 nats in one order and takes 2 in the other."""
    stage = STAGES["critique_instructions"].model_copy(
        update={"parameters": CritiqueInstructionsParameters(agreement="mean")}
    )
    liking: Callable[[int], tuple[float, float]] = lambda place: (3.5, -0.5) if place % 2 == 0 else (0.5, -3.5)  # noqa: E731
    both = values_of(critic_evidence(tmp_path, "critique_instructions", signed=liking))
    mean = values_of(critic_evidence(tmp_path, "critique_instructions", signed=liking, stage=stage))
    assert (both["instructions_acceptance_rate"], mean["instructions_acceptance_rate"]) == (0.0, 0.5)
    assert both["instructions_swap_inconsistency"] == mean["instructions_swap_inconsistency"] == 1.0


def test_prefer_metrics_are_those_of_the_rows(tmp_path: Path) -> None:
    # First against second, first against third, second against third: the first wins both.
    values = values_of(critic_evidence(tmp_path, "best_of_n", signed=lambda place: (2.0, 2.0)))
    assert (values["pair_comparisons"], values["pair_judge_abstention_rate"], values["pair_judge_first_rate"]) == (
        18,
        0,
        0.5,
    )
    # Two judged pairs a prompt, one negative a prompt.
    assert values["pairs"] == 18 and values["hard_negative_share"] == pytest.approx(1 / 3)
    leaning = values_of(critic_evidence(tmp_path, "best_of_n", signed=only_a, sample=labelled_sample("best_of_n")))
    assert (leaning["pair_judge_first_rate"], leaning["pair_judge_abstention_rate"], leaning["pairs"]) == (1.0, 1.0, 0)


def test_revision_metrics_are_those_of_the_rows(tmp_path: Path) -> None:
    def change(n: int, place: int) -> str:
        if n == 0:
            return "I'm sorry, I cannot say that."
        return "" if n == 1 else f"{TOPICS[n]} has some sides, {place}."

    values = values_of(critic_evidence(tmp_path, "revise", rows=chains(change=change)))
    assert values["chains"] == 6 and values["revised_rate"] == pytest.approx(4 / 6)
    assert values["revision_refusal_rate"] == values["revision_short_rate"] == pytest.approx(1 / 6)
    assert values["revision_unchanged_rate"] == pytest.approx(2 / 6)
    assert values["revision_pairs"] == 4 and values["principle_imbalance"] <= 1


def test_prefer_parameters_of_the_evidence_are_the_granted_ones() -> None:
    assert STAGES["best_of_n"].parameters == BEST_OF_N
