"""The labelled samples of critics, asked for before anything is spent; and the agreement that is computed from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from reviews.stages.critique.critic_checks import samples_of
from reviews.statistics.agreement import measure_calibration
from specs.session.session_spec import SessionSpec
from specs.session.thresholds import Thresholds
from specs.stages.base.artifacts import Item
from specs.stages.registry import Stage
from testing.factories.critic_evidence import STAGES, labelled_sample
from testing.factories.evidence_on_disk import resolved_spec


def with_stage(folder: Path, kind: str, reference: str = "data.labelled") -> SessionSpec:
    spec = resolved_spec(folder).spec
    stage: Stage = STAGES[kind].model_copy(update={"inputs": STAGES[kind].inputs | {"calibration": reference}})
    return spec.model_copy(update={"stages": (*spec.stages, stage)})


@pytest.mark.parametrize("kind", ["critique_instructions", "critique_responses", "best_of_n"])
def test_a_sample_of_both_labels_passes_at_the_least_size(tmp_path: Path, kind: str) -> None:
    spec = with_stage(tmp_path, kind)
    data = {"labelled": tuple(labelled_sample(kind, 30))}
    assert samples_of(spec, data).status == "PASS"
    for stricter in ({"labelled_items": 31}, {"labelled_minority": 16}):
        assert samples_of(spec.model_copy(update={"thresholds": Thresholds(**stricter)}), data).status == "FAIL"
    fitting = spec.model_copy(update={"thresholds": Thresholds(labelled_minority=15)})
    assert samples_of(fitting, data).status == "PASS"


def without_response(items: list[Item]) -> list[Item]:
    return [item.model_copy(update={"constraint": {"label": item.constraint["label"]}}) for item in items]


@pytest.mark.parametrize(
    ("kind", "sample", "output"),
    [
        ("critique_instructions", [], "holds 0 items"),
        ("critique_instructions", labelled_sample("critique_responses"), "has a response"),
        ("critique_instructions", labelled_sample("best_of_n"), "has the label 'first'; it has to be 'good' or 'bad'"),
        ("critique_responses", without_response(labelled_sample("critique_responses")), "has no response"),
        ("best_of_n", labelled_sample("critique_responses"), "it has to be 'first' or 'second'"),
        ("best_of_n", without_response(labelled_sample("best_of_n")), "lacks its 'first' or 'second' response"),
        ("critique_instructions", labelled_sample("critique_instructions", 80)[::2], "holds 40 good"),
        ("critique_instructions", labelled_sample("", 80)[::2] + labelled_sample("", 8)[1::2], "holds 4 bad, 40 good"),
    ],
)  # fmt: skip
def test_a_sample_that_shows_nothing_stops_the_design(
    tmp_path: Path, kind: str, sample: list[Item], output: str
) -> None:
    outcome = samples_of(with_stage(tmp_path, kind), {"labelled": tuple(sample)})
    assert outcome.status == "FAIL" and output in outcome.detail


def test_labels_of_a_stage_are_no_labels_of_a_person(tmp_path: Path) -> None:
    outcome = samples_of(with_stage(tmp_path, "best_of_n", "sample.accepted"), {})
    assert outcome.status == "FAIL" and "takes its labels from 'sample'" in outcome.detail


def test_kappa_has_the_value_of_the_formula() -> None:
    """20 yes-yes, 5 yes-no, 10 no-yes, 15 no-no: observed 0.7, by chance 0.5, kappa 0.4 (Cohen 1960, by hand)."""
    ours = [True] * 25 + [False] * 25
    theirs = [True] * 20 + [False] * 5 + [True] * 10 + [False] * 15
    agreement = measure_calibration(ours, theirs)
    assert (agreement.n, agreement.agreed) == (50, 35)
    assert agreement.kappa == pytest.approx(0.4)
    # Fleiss, Cohen and Everitt give 0.4 +- 0.25; Wilson's limits of 0.7 are 0.562 and 0.809.
    assert agreement.interval[0] == pytest.approx(2 * 0.5624764 - 1, abs=0.03)
    assert agreement.interval[0] < 0.4 < agreement.interval[1] < 0.66


@pytest.mark.parametrize(("n", "low"), [(4, 0.02), (30, 0.77), (200, 0.96)])
def test_full_agreement_of_few_items_is_not_certain(n: int, low: float) -> None:
    labels = [place % 2 == 0 for place in range(n)]
    agreement = measure_calibration(labels, labels)
    assert agreement.kappa == 1 and agreement.interval[1] == 1
    assert agreement.interval[0] == pytest.approx(low, abs=0.01)


def test_a_critic_that_says_one_thing_has_no_agreement_beyond_chance() -> None:
    assert measure_calibration([True] * 40, [True] * 20 + [False] * 20).kappa == 0
    alike = measure_calibration([True] * 40, [True] * 40)
    assert (alike.kappa, alike.interval) == (0.0, (-1.0, 1.0))


@pytest.mark.parametrize("kappa", [0.0, 0.5, 0.9])
def test_the_interval_holds_kappa_as_often_as_it_says(kappa: float) -> None:
    """Two raters with known kappa: with probability kappa one answer, otherwise two coins. 400 samples of 40."""
    import numpy as np

    rng = np.random.default_rng(11)
    count = 0
    for _ in range(400):
        shared, coin = rng.random(40) < kappa, rng.random((2, 40)) < 0.5
        item, other = coin[0], np.where(shared, coin[0], coin[1])
        low, high = measure_calibration(item.tolist(), other.tolist()).interval
        count += low <= kappa <= high
    assert count >= 0.93 * 400
