"""Rules on prose nominate sentences that plan a fault; those that forbid, ask or merely mention it are left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from reviews.requests.answer_forms import places_in
from reviews.requests.citations import CitationResolver
from reviews.requests.file_reading import FOR_RULES, RequestReader
from reviews.requests.rules.file_review import review_by_rule
from reviews.requests.rules.prose import find_rule_words, sentences
from reviews.requests.rules.prose_faults import RULES
from reviews.requests.rules.rule_findings import RuleMaterial
from specs.system.masking import Masker
from specs.trail.requested_review import ReviewAnswer, ReviewKind
from testing.fixtures.command_sessions import called as peergate

PLANNED: dict[str, tuple[str, ...]] = {
    "selection_on_heldout": (
        "We train five models and pick the best checkpoint on the held-out set.",
        "Pick the best checkpoint on the held-out set.",
        "The final model is selected by test accuracy.",
        "On the test set we choose the epoch to ship.",
        "Keep the checkpoint with the highest held-out accuracy.",
        "We use early stopping on the test split.",
        "We do not have a validation set, so we choose the checkpoint using the held-out split.",
        "Training has 10 epochs, but we keep what scores best; that is, we rank runs by benchmark score.",
    ),
    "tuning_on_heldout": (
        "Hyperparameters are tuned: we optimize the learning rate on the test set.",
        "We will tune the prompt on the held-out items.",
        "Then we adjust the threshold using the held-out results.",
        "A sweep searches hyperparameters against the benchmark.",
    ),
    "training_on_test": (
        "We fine-tune on the test set as well.",
        "The model is trained on all held-out items too.",
        "We add the benchmark questions to the training data.",
        "Mix the evaluation prompts into training.",
    ),
    "optional_stopping": (
        "We add seeds until the difference is significant.",
        "Stop as soon as p < 0.05.",
        "Collect more samples until p < 0.05 is reached.",
        "Once the gain is significant we stop.",
    ),
    "peeking": (
        "We look at the test accuracy after each epoch.",
        "We monitor held-out results during training.",
        "Check the held-out scores every day.",
    ),
    "metric_after_results": (
        "We will choose the metric after seeing the results.",
        "Report the metric that improves most.",
        "The benchmark is selected, we pick the benchmark with the largest gain.",
        "Which score to report is open: we select the measure depending on the outcome.",
    ),
    "criterion_after_results": (
        "The success criteria are open; we set the threshold once we see the data.",
        "We define the hypothesis after looking at the outputs.",
        "Alpha is fixed by us: we choose alpha later.",
    ),
    "cherry_picked_examples": (
        "In the report we show the best examples.",
        "We present the most impressive outputs of the model.",
        "Examples are cherry-picked for the slides.",
    ),
    "post_hoc_subgroup": (
        "We look for subgroups where the effect is significant.",
        "Report the categories in which the model improved.",
        "Afterwards we search for slices that show a gain.",
    ),
    "left_out_runs": (
        "We drop failed runs.",
        "Unlucky seeds are annoying: we exclude bad seeds from the mean.",
        "Discard diverged runs and outlier results.",
    ),
    "best_of_seeds": (
        "We run five seeds and report the best of them, the best seed.",
        "Report the best of five runs.",
        "We use the highest of three seeds.",
    ),
    "one_seed_claimed_general": (
        "A single seed is enough.",
        "One run shows that the method works in general.",
        "We conclude from a single seed that it is robust.",
    ),
    "no_uncertainty": (
        "We report the accuracy without error bars.",
        "There are no confidence intervals in the table.",
        "We do not compute significance tests.",
    ),
    "no_baseline": (
        "There is no baseline.",
        "We train without a control arm.",
        "To save money we skip the baseline.",
        "We do not need a baseline.",
    ),
    "no_heldout": (
        "There is no held-out set.",
        "We measure accuracy on the training data.",
        "We do not keep a separate test set.",
    ),
    "no_deduplication": (
        "The data are used as they are, without deduplication.",
        "We skip overlap checks.",
        "There is no need, so we do no decontamination.",
    ),
    "uncorrected_comparisons": (
        "We test all metrics and report those that are significant.",
        "There is no correction for multiple comparisons.",
        "We compare 20 benchmarks and claim whichever improves.",
    ),
    "judges_itself": (
        "The fine-tuned model grades its own answers.",
        "The trained model rates itself.",
        "We use self-grading for rewards.",
    ),
    "unequal_arms": (
        "We use a better prompt for the trained model.",
        "A larger max_new_tokens is used for the treatment.",
        "There are more attempts for our model.",
    ),
}

NOT_PLANNED: dict[str, tuple[str, ...]] = {
    "selection_on_heldout": (
        "Never pick the best checkpoint on the held-out set.",
        "We do not choose the model on the test set.",
        "We pick the best checkpoint on the validation set and evaluate on the held-out set.",
        "Choosing a checkpoint by test accuracy would inflate the result.",
        "Selecting the model on the held-out set is forbidden.",
        "Should we pick the best checkpoint on the held-out set?",
        "We pick the best checkpoint on the validation set, never on the held-out set.",
        "Picking a checkpoint on the test set must not happen.",
        "The gate refuses a session that picks a checkpoint on the held-out split.",
    ),
    "tuning_on_heldout": (
        "Hyperparameters are tuned on the validation split.",
        "We never tune the prompt on the held-out items.",
        "We optimize the learning rate on validation data and then report on the test set.",
        "Tuning the threshold on the test set is not allowed.",
    ),
    "training_on_test": (
        "We train on the training set and evaluate on the test set.",
        "The model is never trained on the held-out items.",
        "We check that no benchmark questions were added to the training data.",
    ),
    "optional_stopping": (
        "We do not add seeds until the difference is significant.",
        "n is registered; the result is significant when p < 0.01.",
        "We never stop as soon as p < 0.05.",
    ),
    "peeking": (
        "We evaluate the held-out set once, at the end.",
        "We do not look at the test accuracy after each epoch.",
        "We monitor the training loss every step.",
    ),
    "metric_after_results": (
        "The primary metric is registered before any data.",
        "We never choose the metric after seeing the results.",
        "Report the metric of the registered comparison.",
    ),
    "criterion_after_results": (
        "The threshold is set before the first run.",
        "We cannot set the threshold once we see the data.",
        "Alpha is 0.01 and registered.",
    ),
    "cherry_picked_examples": (
        "Examples are shown at fixed places, not cherry-picked.",
        "We show one example of each kind, drawn at random.",
        "We avoid showing the best examples.",
    ),
    "post_hoc_subgroup": (
        "The subgroups are registered, and all of them are reported.",
        "We do not search for subgroups where the effect is significant.",
        "Results are given by category.",
    ),
    "left_out_runs": (
        "Every attempt is reported, failed ones included.",
        "We never drop failed runs.",
        "Duplicates are removed from the training data.",
    ),
    "best_of_seeds": (
        "We report mean and spread over five seeds.",
        "We never report the best of five runs.",
        "We use the best practice of the field.",
    ),
    "one_seed_claimed_general": (
        "One seed is one seed: nothing is claimed beyond this run.",
        "A single seed is not enough.",
        "We run five seeds to show that the gain is robust.",
    ),
    "no_uncertainty": (
        "Every difference comes with a confidence interval.",
        "We never report a gain without confidence intervals.",
        "Error bars are 95 % intervals.",
    ),
    "no_baseline": (
        "The baseline is the untrained model.",
        "No claim is made without a baseline.",
        "We never train without a control arm.",
        "There is no comparison of prices here.",
    ),
    "no_heldout": (
        "The held-out set has 120 items.",
        "Nothing is trained without a held-out set.",
        "We never measure accuracy on the training data.",
    ),
    "no_deduplication": (
        "Training data are deduplicated against the held-out split.",
        "No overlap was found.",
        "We never train without deduplication.",
    ),
    "uncorrected_comparisons": (
        "p values are adjusted by Benjamini-Hochberg.",
        "There is one registered comparison, so a correction is not the question.",
        "We never test all metrics and report those that are significant.",
    ),
    "judges_itself": (
        "A verifier judges the answers.",
        "The trained model never grades its own answers.",
        "Another model judges both arms.",
    ),
    "unequal_arms": (
        "Both arms have the same prompt, decoding and limits.",
        "We do not use a better prompt for the trained model.",
        "A larger model is used.",
    ),
}


def found_in(text: str) -> set[str]:
    return {rule.id for sentence in sentences(text) for rule in RULES if find_rule_words(rule, sentence) is not None}


def reviewed(folder: Path, text: str, kind: ReviewKind = "methodology", name: str = "plan.md") -> ReviewAnswer:
    (folder / name).write_text(text, encoding="utf-8")
    reader = RequestReader(Masker({}), limits=FOR_RULES)
    reader.add(str(folder / name), "file")
    answer = review_by_rule(RuleMaterial(reader.reading, reader.sources, lambda _: True, str), kind)
    assert all(CitationResolver(reader.reading).holds(one) for one in places_in(answer))
    return answer


def test_every_rule_has_cases_of_both_sorts() -> None:
    ids = [rule.id for rule in RULES]
    assert len(set(ids)) == len(ids) and 10 <= len(ids) <= 20
    assert set(ids) == PLANNED.keys() == NOT_PLANNED.keys()
    assert all(len(cases[id]) >= 3 for cases in (PLANNED, NOT_PLANNED) for id in ids)


@pytest.mark.parametrize(("id", "text"), [(id, text) for id, cases in PLANNED.items() for text in cases])
def test_a_sentence_that_plans_the_fault_is_nominated(id: str, text: str) -> None:
    assert id in found_in(text)


@pytest.mark.parametrize(("id", "text"), [(id, text) for id, cases in NOT_PLANNED.items() for text in cases])
def test_a_sentence_that_does_not_is_left_alone(id: str, text: str) -> None:
    assert found_in(text) == set(), id


PLAN = """\
# Plan

We fine-tune the model with LoRA
and evaluate its accuracy. After
training we pick the best
checkpoint on the held-out set.

```
pick the best checkpoint on the held-out set
```

## What we never do

- tune the prompt on the held-out items
- drop failed runs

We avoid:

- reporting the best of five runs

Otherwise:

- we drop failed runs
"""


def test_a_sentence_over_several_lines_is_quoted_where_it_begins(tmp_path: Path) -> None:
    answer = reviewed(tmp_path, PLAN)
    told = [
        (one.severity, one.statement.split(")")[0], [str(place) for place in one.evidence]) for one in answer.issues
    ]
    assert told[0] == ("CRITICAL", "by its words (selection_on_heldout", ["plan.md:5"])
    assert "pick the best" in answer.issues[0].evidence[0].quote
    assert len(told) == 1, "what stands below a heading or lead-in that says never, or in code, is left alone"
    assert answer.overall_assessment.startswith("Not to be used as it is")


def test_a_list_under_another_heading_counts_again(tmp_path: Path) -> None:
    text = "## What we never do\n\n- drop failed runs\n\n## What we do\n\n- drop failed runs\n"
    (issue,) = reviewed(tmp_path, text).issues
    assert [place.first_line for place in issue.evidence] == [7]


def test_what_a_plan_leaves_open_is_a_concern_and_a_whole_plan_has_none(tmp_path: Path) -> None:
    bare = reviewed(tmp_path, "We train with SFT and measure accuracy.\n")
    assert [one.statement.split(",")[0] for one in bare.statistical_concerns] == [
        "the plan names no baseline",
        "the plan names no held-out data",
        "the plan says nothing of seeds",
        "the plan names neither a test nor an interval",
        "the plan does not say how overlap of training and held-out data is looked for",
    ]
    whole = (
        "We train with SFT and compare with the untrained model on 120 held-out items, over three seeds, by an exact "
        "McNemar test with alpha 0.01; training data are deduplicated against the held-out split.\n"
    )
    answer = reviewed(tmp_path, whole)
    assert (answer.statistical_concerns, answer.issues) == ((), ())
    assert reviewed(tmp_path, "Notes of a meeting about lunch.\n").statistical_concerns == ()


def test_rules_say_that_they_nominate_and_do_not_understand(tmp_path: Path) -> None:
    answer = reviewed(tmp_path, PLAN)
    assert any("nominate sentences by their words and do not understand them" in one for one in answer.not_judged)
    assert "in prose nominate sentences by their words" in answer.overall_assessment


def test_documentation_in_a_review_of_code_is_not_a_plan(tmp_path: Path) -> None:
    assert reviewed(tmp_path, PLAN, "code").issues == ()
    assert reviewed(tmp_path, PLAN, "design").issues != ()


def test_the_command_finds_it_and_quotes_the_line(tmp_path: Path) -> None:
    (tmp_path / "plan.md").write_text(
        "# Plan\n\nTrain five models.\nThen pick the best checkpoint on the held-out set.\n", encoding="utf-8"
    )
    done = peergate("review", "request", "plan.md", "--kind", "methodology", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "CRITICAL" in done.stdout and "selection_on_heldout" in done.stdout
    assert '[plan.md:4] "Then pick the best checkpoint on the held-out set."' in done.stdout
