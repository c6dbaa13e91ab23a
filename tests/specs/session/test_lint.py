from __future__ import annotations

import re
from pathlib import Path

import pytest

from specs.lint.rules import lint
from testing.factories.spec_files import list_problems, loads, write_spec

TUNED = "{model: train.checkpoint, items: heldout}\n    parameters: {max_new_tokens: 32, seed: 7}"
LOSS = "- {metric: loss_drop, above: 0}"
CRITERIA = "    gate:\n      criteria:\n        - "
AT_TUNED = f"{TUNED}\n{CRITERIA}"


def test_a_valid_spec_breaks_no_rule(tmp_path: Path) -> None:
    assert lint(loads(write_spec(tmp_path)).spec) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("name: ship", "name: models"),
        (TUNED, f"{AT_TUNED}{{metric: accuracy_gain, at_least: 0.1}}"),
        (TUNED, f"{AT_TUNED}{{metric: mcnemar_p, below: 0.05}}"),
        (TUNED, f"{AT_TUNED}{{metric: accuracy_gain, at_most: 0.9}}"),
        (TUNED, f"{AT_TUNED}{{metric: lost, at_most: 2}}"),
        (TUNED, f"{AT_TUNED}{{metric: accuracy, at_least: 0.5}}\n        - {{metric: accuracy, at_most: 0.5}}"),
        (LOSS, "- {metric: max_grad_norm, below: 100}"),
        ("{min: 0.5, max: 1.0}", "{min: 0.8, max: 0.8}"),
        ("  max_hours: 2\n", "  max_hours: 1.1666666666666667\n"),
        ("{vendor: playbook}", "{vendor: anthropic, model: claude-opus-5}"),
        ("max_cost_usd: 10", "max_cost_usd: 2.6"),
        ("{evaluation: 0.2, review: 0.05, teardown: 0.05}", "{evaluation: 0.3, review: 0.3, teardown: 0.1}"),
    ],
)
def test_what_is_allowed_stays_allowed(tmp_path: Path, old: str, new: str) -> None:
    loads(write_spec(tmp_path, (old, new)))


@pytest.mark.parametrize(
    ("old", "new", "keys", "message"),
    [
        # Names.
        ("name: ship", "name: train", "stages[4].name", "the name is already used by stages[2]"),
        ("name: ship", "name: model", "stages[4].name", "'model' is reserved for references to inputs"),
        ("prompts: {path: prompts.jsonl}", "prompts: {path: prompts.jsonl}\n  heldout: {path: prompts.jsonl}",
         "data.heldout", "'heldout' is reserved"),
        # Inputs.
        ("{model: model, prompts: data.prompts}", "{model: model}", "stages[1].inputs.prompts",
         "input 'prompts' is missing: generate reads model and prompts (items here: data.prompts)"),
        ("task: format_instructions", "task: exact_answer", "stages[1].parameters.worked_example",
         "task exact_answer has no worked example (worked_example: false)"),
        ("prompts: data.prompts", "prompt: data.prompts", "stages[1].inputs.prompt",
         "generate has no input 'prompt' (did you mean 'prompts'?)"),
        ("{model: model, prompts", "{model: model, judge: model, prompts", "stages[1].inputs.judge",
         "generate has no input 'judge' (it reads: model, prompts)"),
        ("sample.accepted", "smaple.accepted", "stages[2].inputs.examples",
         "'smaple.accepted' names the unknown stage 'smaple' (did you mean 'sample'?)"),
        ("sample.accepted", "sample.acepted", "stages[2].inputs.examples",
         "stage 'sample' (generate) has no output 'acepted' (did you mean 'accepted'?)"),
        ("sample.accepted", "sample.rows", "stages[2].inputs.examples",
         "needs examples, 'sample.rows' is rows (examples here: sample.accepted)"),
        ("data.prompts", "data.promts", "stages[1].inputs.prompts", "unknown data file 'promts'"),
        ("sample.accepted", "train.rows", "stages[2].inputs.examples", "'train.rows' points to the stage itself"),
        ("sample.accepted", "tuned.rows", "stages[2].inputs.examples",
         "'tuned.rows' points to stages[3], which comes later"),
        ("model: model, examples", "model: heldout, examples", "stages[2].inputs.model",
         "the held-out split is not for sft stages (only evaluate, perplexity, multiple_choice, pairwise_judge, "
         "multi_turn, inspect, lm_eval, code_eval, package, export, bench stages may read it)"),
        ("data.prompts", "heldout", "stages[1].inputs.prompts", "the held-out split is not for generate stages"),
        ("model: model, examples", "model: data.prompts, examples", "stages[2].inputs.model",
         "needs a checkpoint, 'data.prompts' is items (checkpoint here: model)"),
        # Criteria.
        (LOSS, "- {metric: loss_drop}", "stages[2].gate.criteria[0]", "the criterion on loss_drop has no bound"),
        (LOSS, "- {metric: loss_drop, above: 0, below: 1}", "stages[2].gate.criteria[0]",
         "the criterion on loss_drop has above and below"),
        (LOSS, "- {metric: loss_dorp, above: 0}", "stages[2].gate.criteria[0].metric",
         "unknown metric 'loss_dorp' (did you mean 'loss_drop'? measured here: steps"),
        (LOSS, "- {metric: zzz, above: 0}", "stages[2].gate.criteria[0].metric", "unknown metric 'zzz' (measured here"),
        (LOSS, "- {metric: validation_loss_rise, at_most: 1}", "stages[2].gate.criteria[0].metric",
         "'validation_loss_rise' is measured only with validation_share (give validation_share, or omit it)"),
        (LOSS, "- {metric: accuracy, above: 0}", "stages[2].gate.criteria[0].metric",
         "'accuracy' is measured by evaluate stages, this one is sft"),
        ("{metric: truncation_rate, at_most: 0.5}", "{metric: accuracy_gain, above: 0}",
         "stages[0].gate.criteria[0].metric", "'accuracy_gain' is measured only at the treatment stage 'tuned'"),
        ("at_most: 0.5", "at_most: 50", "stages[0].gate.criteria[0].at_most",
         "'truncation_rate <= 50' makes no sense: truncation_rate (fraction) is always from 0 to 1"),
        ("at_most: 0.5", "below: 0", "stages[0].gate.criteria[0].below", "'truncation_rate < 0' makes no sense"),
        ("identical_outputs, at_least: 1", "identical_outputs, above: 1", "stages[4].gate.criteria[0].above",
         "'identical_outputs > 1' makes no sense"),
        (LOSS, "- {metric: steps, at_least: -1}", "stages[2].gate.criteria[0].at_least",
         "'steps >= -1' makes no sense"),
        (LOSS, f"{LOSS}\n        {LOSS}", "stages[2].gate.criteria[1]", "'loss_drop > 0' repeats criteria[0]"),
        (LOSS, f"{LOSS}\n        - {{metric: loss_drop, at_least: 1}}", "stages[2].gate.criteria[1]",
         "'loss_drop >= 1' is a second lower bound after 'loss_drop > 0' (criteria[0])"),
        (LOSS, f"{LOSS}\n        - {{metric: loss_drop, at_most: -1}}", "stages[2].gate.criteria[1]",
         "'loss_drop <= -1' contradicts 'loss_drop > 0' (criteria[0]): no value meets both"),
        (LOSS, f"{LOSS}\n        - {{metric: loss_drop, at_most: 0}}", "stages[2].gate.criteria[1]",
         "'loss_drop <= 0' contradicts"),
        (TUNED, f"{AT_TUNED}{{metric: mcnemar_p, below: 0.1}}", "stages[3].gate.criteria[0]",
         "'mcnemar_p < 0.1' contradicts the registered analysis, which already holds mcnemar_p below alpha = 0.05"
         " (remove the criterion)"),
        (TUNED, f"{AT_TUNED}{{metric: mcnemar_p, at_least: 0.05}}", "stages[3].gate.criteria[0]",
         "'mcnemar_p >= 0.05'"),
        (TUNED, f"{AT_TUNED}{{metric: accuracy_gain, above: 0}}", "stages[3].gate.criteria[0]",
         "'accuracy_gain > 0' contradicts the registered analysis, which already holds accuracy_gain against"
         " minimum_effect = 0.1"),
        (TUNED, f"{AT_TUNED}{{metric: accuracy_gain, at_most: 0.05}}", "stages[3].gate.criteria[0]",
         "'accuracy_gain <= "),
        # Ranges.
        ("temperature: {min", "temprature: {min", "stages[1].ranges.temprature",
         "generate has no parameter 'temprature' (did you mean 'temperature'?)"),
        ("temperature: {min", "worked_example: {min", "stages[1].ranges.worked_example",
         "'worked_example' is not a number"),
        ("temperature: {min: 0.5, max: 1.0}", "seed: {min: 0, max: 9}", "stages[1].ranges.seed",
         "the seed is registered"),
        ("{min: 0.5, max: 1.0}", "{min: 1.0, max: 0.5}", "stages[1].ranges.temperature",
         "min 1 is larger than max 0.5"),
        ("{min: 0.5, max: 1.0}", "{min: 0.9, max: 1.0}", "stages[1].ranges.temperature",
         "temperature = 0.8 lies outside its own range [0.9, 1]"),
        ("{min: 0.5, max: 1.0}", "{min: 0.5, max: 3}", "stages[1].ranges.temperature",
         "max 3 is outside the limits of temperature: must be less than or equal to 2"),
        ("temperature: {min: 0.5, max: 1.0}", "samples_per_prompt: {min: 0.5, max: 4}",
         "stages[1].ranges.samples_per_prompt", "min 0.5 is not a whole number"),
        ("temperature: {min: 0.5, max: 1.0}", "max_prompts: {min: 1, max: 4}", "stages[1].ranges.max_prompts",
         "max_prompts has a range but no value"),
        (TUNED, f"{TUNED}\n    ranges: {{max_new_tokens: {{min: 1, max: 99}}}}", "stages[3].ranges.max_new_tokens",
         "this stage is an arm of the registered analysis"),
        # Analysis.
        ("treatment: tuned", "treatment: tund", "analysis.treatment", "unknown stage 'tund' (did you mean 'tuned'?)"),
        ("treatment: tuned", "treatment: train", "analysis.treatment", "'train' is a stage of kind sft"),
        ("treatment: tuned", "treatment: base", "analysis.treatment", "baseline and treatment are the same stage"),
        ("{model: train.checkpoint, items: heldout}\n    parameters: {max",
         "{model: model, items: heldout}\n    parameters: {max", "stages[3].inputs.model",
         "both arms evaluate 'model', so they cannot differ"),
        (TUNED, TUNED.replace("heldout", "data.prompts"), "stages[3].inputs.items",
         "the treatment reads 'data.prompts', the analysis registers heldout"),
        (TUNED, TUNED.replace("32", "64"), "stages[3].parameters.max_new_tokens",
         "max_new_tokens is 64 here and 32 at the baseline 'base'"),
        ("  n: 3", "  n: 4", "analysis.n", "n is 4, 'heldout.jsonl' holds 3 items"),
        ("probe_items: 2, seed: 7", "probe_items: 2, seed: 8", "stages[4].parameters.seed",
         "seed is 8, the analysis registers 7"),
        ("probe_items: 2, seed: 7", "probe_items: 2", "stages[4].parameters.seed", "seed is 0 (the default)"),
        # Parties.
        ("{vendor: playbook}", "{vendor: openai}", "builder.model", "vendor 'openai' needs a model"),
        ("{vendor: checklist}", "{vendor: checklist, model: m}", "reviewer.model", "'checklist' works without a model"),
        ("{vendor: playbook}\nreviewer: {vendor: checklist}",
         "{vendor: openai, model: gpt-5}\nreviewer: {vendor: openai, model: gpt-5-mini}", "reviewer.vendor",
         "the reviewer is from the builder's vendor 'openai'"),
        # Budget.
        ("{evaluation: 0.2, review: 0.05, teardown: 0.05}", "{evaluation: 0.5, review: 0.3, teardown: 0.2}",
         "budget.held_back", "the held-back shares add up to 1"),
        ("max_cost_usd: 10", "max_cost_usd: 2.2", "budget.max_cost_usd",
         "2.2 USD do not cover one attempt of each stage: up to 'train' they may cost 1.67 USD, and 0.66 USD"
         " are held back (all stages: 2.33 USD)"),
        ("  max_hours: 2\n", "  max_hours: 1\n", "budget.max_hours", "one attempt of each stage may take 1.17 h"),
        ("    max_minutes: 30\n", "    max_minutes: 30\n    max_cost_usd: 0.99\n", "stages[2].max_cost_usd",
         "one attempt of 'train' may cost 1.00 USD, its max_cost_usd is 0.99"),
        ("  max_hours: 2\n", "  max_hours: 2\n  builder_max_usd: 10.5\n", "budget.builder_max_usd",
         "builder_max_usd is 10.5, max_cost_usd of the session 10"),
        ("  max_hours: 2\n", "  max_hours: 2\n  dead_man_minutes: 0.5\n", "budget.dead_man_minutes",
         "dead_man_minutes must be"),
        # Data.
        ("{path: prompts.jsonl}", "{path: heldout.jsonl}", "data.prompts.path",
         "'heldout.jsonl' is the held-out split"),
    ],
)  # fmt: skip
def test_a_broken_rule_is_one_problem_at_its_key(tmp_path: Path, old: str, new: str, keys: str, message: str) -> None:
    (result,) = list_problems(write_spec(tmp_path, (old, new)))
    text = (
        re.sub(r"stage '\w+': ", "", result.split(f" {keys}: ", 1)[-1], count=1) if f" {keys}: " in result else result
    )
    assert text.startswith(message), result


def test_the_baseline_comes_first(tmp_path: Path) -> None:
    changes = (("baseline: base", "baseline: tuned"), ("treatment: tuned", "treatment: base"))
    (result,) = list_problems(write_spec(tmp_path, *changes))
    assert "baseline and treatment are in the wrong order: 'base' runs first" in result


def test_the_budget_rule_is_the_ledgers(tmp_path: Path) -> None:
    # Up to 'train' the stages cost 50 minutes at 2 USD/h = 1.667 USD, with 30 % held back; all five 2.333 USD, 10 %.
    enough = 2.3334 / 0.9
    loads(write_spec(tmp_path, ("max_cost_usd: 10", f"max_cost_usd: {enough}")))
    (result,) = list_problems(write_spec(tmp_path, ("max_cost_usd: 10", f"max_cost_usd: {enough - 0.01}")))
    assert "up to 'ship' they may cost 2.33 USD" in result
