"""Training stages on random models of two layers: what is left, and what stops them, each with the fault planted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.evidence.evidence import Evidence
from specs.stages.finetuning.kinds import DPO, SFT
from specs.system.digests import digest_file, digest_path, digest_tree
from testing.factories.evidence_on_disk import evidence_of
from testing.factories.judged_evidence import results_of
from testing.fixtures.needed import need
from testing.fixtures.simulated_kill import SimulatedKill
from testing.fixtures.tiny_training import opposites, preferred, tiny_checkpoint, train, training_job, write_lines
from training.jobs.job import Job, StageResult

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("one_thread")]

need("torch", "trl", "peft")

QUICK: dict[str, Any] = {"epochs": 2, "batch_size": 4, "learning_rate": 1e-3, "max_length": 128, "seed": 3}
ADAPTER: dict[str, Any] = {
    "method": "lora",
    "lora_rank": 4,
    "lora_alpha": 8,
    "lora_dropout": 0.1,
    "target_modules": ("q_proj", "down_proj"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(autouse=True)
def quiet_warnings() -> None:
    import warnings

    # The stages run in processes of their own, where a warning of a library is a line in the log.
    warnings.simplefilter("ignore")


def sft_job(folder: Path, model: Path, **parameters: Any) -> Job:
    data = write_lines(folder / "examples.jsonl", opposites())
    return training_job(folder / "job", "sft", model, data, **QUICK | parameters)


def dpo_job(folder: Path, model: Path, **parameters: Any) -> Job:
    data = write_lines(folder / "pairs.jsonl", preferred())
    arguments: dict[str, Any] = QUICK | {"validation_share": 0.2} | parameters
    return training_job(folder / "job", "dpo", model, data, **arguments)


def arguments_with(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> None:
    """Have every trainer be told something else than what was granted."""
    from training.jobs.finetuning import trainer_args

    report = trainer_args.arguments

    def other(*values: Any) -> dict[str, Any]:
        return report(*values) | changed

    monkeypatch.setattr(trainer_args, "arguments", other)


def plain_trainer(folder: Path, model: Path, **arguments: Any) -> Any:
    """Return TRL's trainer as its own documentation builds it, on sixteen rows."""
    from datasets import Dataset
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    from training.engines.checkpoint import load

    network, tokenizer = load(model)
    rows = [{"prompt": f"{opposite['prompt']} ", "completion": opposite["completion"]} for opposite in opposites(16)]
    defaults: dict[str, Any] = {"activation_checkpointing": False, "bf16": False, "use_cpu": True, "report_to": "none"}
    config = SFTConfig(output_dir=str(folder / "plain"), save_strategy="no", logging_steps=1, **defaults | arguments)
    return SFTTrainer(model=network, args=config, train_dataset=Dataset.from_list(rows), processing_class=tokenizer)


def test_supervised_training_leaves_rows_proof_and_settings(tmp_path: Path, model: Path) -> None:
    job = sft_job(tmp_path, model, gradient_accumulation=2, scheduler="cosine", warmup_steps=1, weight_decay=0.01)
    done = train(job)
    rows = [json.loads(line) for line in (job.out / "rows.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3, 4] and all(row["tokens"] > 0 for row in rows)
    for name, granted in job.order.parameters.items():
        if name not in ("max_examples_per_kind", "warmup_ratio"):
            assert done.effective[name] == granted, name
    assert done.effective["warmup_steps"] == 1 and done.facts["loss_difference"] < 1e-5
    mask = done.facts["mask"]
    assert (mask["rows"], mask["violations"], mask["merged"]) == (24, 0, 0)
    for item in mask["sample"]:
        assert set(item["labels"][: item["prompt_tokens"]]) == {-100}
        assert item["labels"][item["prompt_tokens"] :] == item["ids"][item["prompt_tokens"] :]
    assert (job.out / "checkpoint" / "tokenizer.json").is_file() and not (job.out / "checkpoint" / "adapter").exists()


BEFORE = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi."},
    {"role": "assistant", "content": "Hello."},
]


@pytest.mark.parametrize(
    ("chat", "begins", "ends"),
    [
        (
            True,
            "<|start|>system\nBe brief.<|end|>\n<|start|>user\nHi.<|end|>\n<|start|>assistant\nHello.<|end|>\n",
            "<|start|>assistant\n",
        ),
        pytest.param(False, "Be brief.\n\nHi.\n\nHello.\n\nWhat is", "?\n\n", marks=pytest.mark.slow),
    ],
    ids=["chat", "base"],
)
def test_turns_before_the_prompt_are_turns_of_the_template_and_carry_no_loss(
    tmp_path: Path, model: Path, chat: bool, begins: str, ends: str
) -> None:
    from transformers import AutoTokenizer

    base = model if chat else tiny_checkpoint(tmp_path / "base", chat=False)
    data = write_lines(tmp_path / "rows.jsonl", [opposite | {"before": BEFORE} for opposite in opposites(4)])
    kind: Any = "instruct" if chat else "base"
    job = training_job(tmp_path / "job", "sft", base, data, kind, **QUICK | {"epochs": 1})
    done = train(job)
    mask, tokenizer = done.facts["mask"], AutoTokenizer.from_pretrained(base)
    assert (mask["rows"], mask["violations"], mask["merged"]) == (4, 0, 0)
    assert done.facts["loss_difference"] < 1e-5
    for item in mask["sample"]:
        answer = tokenizer.decode(item["ids"][: item["prompt_tokens"]])
        assert answer.startswith(begins) and answer.rstrip(" ").endswith(ends), answer


@pytest.mark.slow
def test_pairs_have_turns_before_the_prompt_too(tmp_path: Path, model: Path) -> None:
    from transformers import AutoTokenizer

    data = write_lines(tmp_path / "pairs.jsonl", [row | {"before": BEFORE} for row in preferred()])
    arguments: dict[str, Any] = QUICK | {"epochs": 1, "validation_share": 0.2}
    job = training_job(tmp_path / "job", "dpo", model, data, **arguments)
    mask, tokenizer = train(job).facts["mask"], AutoTokenizer.from_pretrained(model)
    assert mask["violations"] == 0
    assert all(tokenizer.decode(item["ids"]).startswith("<|start|>system\nBe brief.") for item in mask["sample"])


def test_failure_07_loss_on_the_prompt_stops_the_first_batch(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trl.trainer import sft_config

    from training.jobs.finetuning.loss_masks import MaskFault

    class Everything(sft_config.SFTConfig):
        def __post_init__(self) -> None:
            super().__post_init__()
            self.completion_only_loss = False

    monkeypatch.setattr(sft_config, "SFTConfig", Everything)
    job = sft_job(tmp_path, model)
    with pytest.raises(
        MaskFault, match=r"^step 1: the tokens before the first with loss \(0 of \d+\) are not a prompt"
    ):
        train(job)
    assert not (job.out / "checkpoint").exists()


def test_a_mask_that_leaves_out_a_response_token_is_no_mask_either() -> None:
    import torch

    from training.jobs.finetuning.loss_masks import KnownPrompts, MaskFault, MaskProof, key

    def batch(*labels: int) -> dict[str, Any]:
        ids = torch.tensor([[5, 6, 7, 8]])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.tensor([labels])}

    prompts = KnownPrompts(frozenset([key([5, 6])]), 0)
    proof = MaskProof(prompts)
    assert proof.see(batch(-100, -100, 7, 8), 1) == (1, 2, 2)
    for wrong in ((-100, 6, 7, 8), (-100, -100, -100, 8), (-100, -100, 7, -100), (-100,) * 4, (5, 6, 7, 8)):
        with pytest.raises(MaskFault):
            MaskProof(prompts).see(batch(*wrong), 1)


def test_a_loss_that_is_no_number_stops_where_the_library_goes_on(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import math

    import torch
    from trl.trainer.sft_trainer import SFTTrainer

    from training.jobs.finetuning.trainer_hooks import TrainingDivergence

    healthy = SFTTrainer.compute_loss

    def broken(self: Any, *values: Any, **named: Any) -> Any:
        loss = healthy(self, *values, **named)
        return loss * float("nan") if self.state.global_step == 2 and self.model.training else loss

    monkeypatch.setattr(SFTTrainer, "compute_loss", broken)
    trainer = plain_trainer(tmp_path, model, num_train_epochs=2)
    trainer.train()
    lines = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    assert len(lines) > 3 and all(math.isfinite(loss) for loss in lines), "the library hides it"
    assert any(torch.isnan(parameter).any() for parameter in trainer.model.parameters()), "and keeps what it did"
    job = sft_job(tmp_path, model)
    with pytest.raises(TrainingDivergence, match=r"^the loss of step 3 is nan"):
        train(job)
    assert not (job.out / "checkpoint").exists() and not (job.out / "rows.jsonl").exists()


def test_a_gradient_that_is_not_finite_stops_before_the_weights_change(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from training.jobs.finetuning import sft as stage
    from training.jobs.finetuning.trainer_hooks import TrainingDivergence

    selected: list[Any] = []

    def infinite(gradient: Any) -> Any:
        return gradient * float("inf")

    def prepare(*values: Any) -> Any:
        prepared = real(*values)
        first = next(prepared.model.parameters())
        first.register_hook(infinite)
        selected.append((first, first.detach().clone()))
        return prepared

    real = stage.prepare
    monkeypatch.setattr(stage, "prepare", prepare)
    with pytest.raises(TrainingDivergence, match=r"^the gradient norm of step 1 is (nan|inf)"):
        train(sft_job(tmp_path, model))
    parameter, before = selected[0]
    assert torch.equal(parameter, before)


def test_a_checkpoint_without_a_tokenizer_is_refused_where_the_library_saves_one(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import PreTrainedTokenizerFast, Trainer, TrainingArguments

    from training.engines.checkpoint import load

    network, _ = load(model)
    Trainer(network, TrainingArguments(output_dir=str(tmp_path / "t"), use_cpu=True)).save_model(
        str(tmp_path / "saved")
    )
    assert (tmp_path / "saved" / "model.safetensors").is_file() and not list((tmp_path / "saved").glob("tokenizer*"))

    def saves_nothing(*_: Any, **__: Any) -> tuple[str, ...]:
        return ()

    monkeypatch.setattr(PreTrainedTokenizerFast, "save_pretrained", saves_nothing)
    with pytest.raises(SystemExit, match=r"^no tokenizer was saved in "):
        train(sft_job(tmp_path, model, epochs=1))


def test_small_data_is_not_begun_again_unsaid(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from training.jobs.finetuning.loss_comparison import GrantMismatch

    trainer = plain_trainer(tmp_path, model, max_steps=8, per_device_train_batch_size=8)
    trainer.train()
    assert trainer.state.epoch == 4.0, "the library goes round four times without a word"
    arguments_with(monkeypatch, max_steps=24)
    with pytest.raises(GrantMismatch, match=r"^epochs is 8, expected 2$"):
        train(sft_job(tmp_path, model))


def test_a_gpu_that_is_not_there_is_refused_where_the_library_takes_the_cpu(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch
    from transformers import TrainingArguments

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert TrainingArguments(output_dir=str(tmp_path / "t")).device.type == "cpu"
    with pytest.raises(SystemExit) as caught:
        train(sft_job(tmp_path, model, device="cuda"))
    assert caught.value.code == 4 and "device: cuda was granted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("report", "granted", "what"),
    [
        ({"lr_scheduler_type": "linear"}, {"scheduler": "cosine"}, "scheduler is linear, expected cosine"),
        ({"warmup_steps": 0}, {"warmup_steps": 3}, "warmup_steps is 0, expected 3"),
        ({"weight_decay": 0.0}, {"weight_decay": 0.1}, "weight_decay is 0.0, expected 0.1"),
        ({"num_train_epochs": 3}, {}, "epochs is 3, expected 2"),
        ({"bf16": True}, {"precision": "float32"}, "precision is mixed, expected float32"),
        ({"gradient_accumulation_steps": 2}, {}, "gradient_accumulation is 2, expected 1"),
        (
            {"activation_checkpointing": False},
            {"gradient_checkpointing": True},
            "gradient_checkpointing is False, expected True",
        ),
    ],
)
def test_failure_08_settings_other_than_the_granted_ones_stop_before_the_first_step(
    tmp_path: Path,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    report: dict[str, Any],
    granted: dict[str, Any],
    what: str,
) -> None:
    from training.jobs.finetuning.loss_comparison import GrantMismatch

    arguments_with(monkeypatch, **report)
    with pytest.raises(GrantMismatch, match=f"^{what}$"):
        train(sft_job(tmp_path, model, **granted))


def test_failure_08_two_modules_instead_of_those_granted_stop_before_the_first_step(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from training.jobs.finetuning import trained_model
    from training.jobs.finetuning.loss_comparison import GrantMismatch

    real: Callable[..., Any] = trained_model.adapter

    def fewer(network: Any, parameters: Any) -> Any:
        config = real(network, parameters)
        config.target_modules = {"q_proj", "v_proj"}
        return config

    monkeypatch.setattr(trained_model, "adapter", fewer)
    with pytest.raises(
        GrantMismatch, match=r"target_modules is \['q_proj', 'v_proj'\], expected \['q_proj', 'down_proj'\]"
    ):
        train(sft_job(tmp_path, model, **ADAPTER))


def test_failure_09_a_module_that_no_layer_has_is_refused(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        train(sft_job(tmp_path, model, **ADAPTER | {"target_modules": ("q_proj", "c_attn")}))
    output = capsys.readouterr().err
    assert "target_modules names c_attn, the linear layers here are down_proj, gate_proj" in output


def test_adapters_are_kept_and_merged(tmp_path: Path, model: Path) -> None:
    import torch
    from peft import PeftModel

    from reviews.stages.finetuning.weights import adapter_parameters
    from training.engines.checkpoint import load

    job = sft_job(tmp_path, model, **ADAPTER, gradient_checkpointing=True)
    done = train(job)
    out = job.out / "checkpoint"
    assert done.effective["method"] == "lora" and done.effective["lora_dropout"] == 0.1
    assert done.effective["trained_parameters"] == adapter_parameters(out, ("q_proj", "down_proj"), 4) > 0
    ids = torch.tensor([[5, 6, 7, 8, 9]])
    with torch.no_grad():
        merged = load(out)[0](ids).logits
        start: Any = load(model)[0]
        bare = start(ids).logits
        adapted = PeftModel.from_pretrained(start, out / "adapter").eval()(ids).logits
    assert torch.allclose(merged, adapted, atol=1e-5) and not torch.allclose(merged, bare, atol=1e-5)
    config = json.loads((out / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] is None and config["target_modules"] == ["down_proj", "q_proj"]


def test_packing_is_taken_where_examples_stay_apart_and_refused_where_not(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformers import LlamaForCausalLM

    done = train(sft_job(tmp_path / "apart", model, packing=True, max_length=160, batch_size=2))
    assert done.facts["sequences"] == 24 and done.facts["trained_rows"] < 12 and done.facts["mask"]["violations"] == 0
    real = LlamaForCausalLM.forward

    def mixing(self: Any, *values: Any, position_ids: Any = None, **named: Any) -> Any:
        return real(self, *values, **named)

    monkeypatch.setattr(LlamaForCausalLM, "forward", mixing)
    with pytest.raises(SystemExit):
        train(sft_job(tmp_path / "mixed", model, packing=True))
    assert "lets packed examples see each other" in capsys.readouterr().err


@pytest.mark.parametrize(
    "loss",
    [
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("dpo", "ipo")),
        "kto",
        *(pytest.param(name, marks=pytest.mark.more) for name in ("orpo", "simpo")),
    ],
)
def test_preferences_are_learnt_with_every_loss(tmp_path: Path, model: Path, loss: str) -> None:
    more = {"simpo_gamma": 0.5, "beta": 2.0} if loss == "simpo" else {}
    job = dpo_job(tmp_path, model, loss=loss, **more)
    done = train(job)
    assert done.effective["loss"] == loss and done.facts["loss_difference"] < 1e-5
    assert done.facts["mask"]["violations"] == 0 and done.facts["sequences"] == 40
    scores = [json.loads(line) for line in (job.out / "pairs.jsonl").read_text().splitlines()]
    assert len({item["group"] for item in scores}) == 1 and len(scores) == 2
    for score in scores:
        gain = score["chosen_after"] - score["chosen_before"] - (score["rejected_after"] - score["rejected_before"])
        if loss != "orpo":
            assert gain > 0
    if loss in ("dpo", "ipo", "kto"):
        assert done.facts["reference_difference"] < 1e-5 and done.facts["reference_responses"] == 12


@pytest.mark.more
@pytest.mark.parametrize("loss", ["orpo", "simpo", "kto"])
def test_a_tokenizer_without_a_padding_token_is_padded_with_its_end(tmp_path: Path, model: Path, loss: str) -> None:
    bare = shutil.copytree(model, tmp_path / "bare")
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (path := bare / name).is_file():
            data = {key: value for key, value in json.loads(path.read_text()).items() if key != "pad_token"}
            path.write_text(json.dumps(data), encoding="utf-8")
    more = {"simpo_gamma": 0.5, "beta": 2.0} if loss == "simpo" else {}
    done = train(dpo_job(tmp_path, bare, loss=loss, **more))
    assert done.facts["mask"]["violations"] == 0 and done.facts["loss_difference"] < 1e-5


def test_a_loss_with_the_prompts_in_it_is_not_the_granted_one(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trl.experimental.orpo import ORPOTrainer

    from training.jobs.finetuning import preference_trainers
    from training.jobs.finetuning.loss_comparison import GrantMismatch

    monkeypatch.setattr(preference_trainers, "_response_orpo", lambda: ORPOTrainer)
    with pytest.raises(GrantMismatch, match=r"^step 1: the trainer's loss is .*; orpo over the response tokens"):
        train(dpo_job(tmp_path, model, loss="orpo"))


def test_the_dropout_of_adapters_is_not_turned_off_unsaid(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trl.trainer import dpo_config

    from training.jobs.finetuning.loss_comparison import GrantMismatch

    class Default(dpo_config.DPOConfig):
        def __post_init__(self) -> None:
            super().__post_init__()
            self.disable_dropout = True

    monkeypatch.setattr(dpo_config, "DPOConfig", Default)
    with pytest.raises(GrantMismatch, match=r"^lora_dropout is 0.0, expected 0.1$"):
        train(dpo_job(tmp_path, model, **ADAPTER))


def judged_evidence(folder: Path, job: Job, done: StageResult) -> Evidence:
    """Return the evidence of a real job."""
    (folder / "evidence").mkdir()
    base = evidence_of(folder / "evidence", "train")
    stages: dict[str, Any] = {"sft": SFT.stage, "dpo": DPO.stage}
    stage = stages[job.order.kind](name="train", kind=job.order.kind, inputs={}, parameters=job.parameters)
    outputs = {path.name.removesuffix(".jsonl"): path for path in job.out.iterdir()}
    evidence = replace(
        base,
        stage=stage,
        parameters=job.order.parameters,
        inputs=job.inputs,
        outputs=outputs,
        output_digests={name: digest_path(path) for name, path in outputs.items()},
    )
    assert base.manifest is not None
    manifest = base.manifest.model_copy(
        update={
            "effective": done.effective,
            "facts": json.loads(json.dumps(done.facts)),
            "seed": job.parameters.seed,
            "inputs": {"model": digest_path(job.inputs["model"])},
        }
    )
    return replace(evidence, manifest=manifest)


def judged(folder: Path, job: Job, done: StageResult) -> dict[str, str]:
    """Return what the checks say of a real job, by id; NOT_APPLICABLE ones are left out."""
    results = results_of(judged_evidence(folder, job, done))
    wanted = ("training.", "dpo.", "replicas.", "jobs.effective")
    return {id: f"{result.status}: {result.detail}" for id, result in results.items() if id.startswith(wanted)}


@pytest.mark.parametrize(
    "kind",
    [pytest.param("sft", marks=pytest.mark.slow), "lora", "packed", "dpo", pytest.param("kto", marks=pytest.mark.slow)],
)
def test_checks_pass_on_what_a_real_job_leaves(tmp_path: Path, model: Path, kind: str) -> None:
    more: dict[str, dict[str, Any]] = {
        "lora": ADAPTER | {"validation_share": 0.34},
        "packed": {"packing": True, "max_length": 160, "batch_size": 2},
        "kto": {"loss": "kto"},
    }
    make = dpo_job if kind in ("dpo", "kto") else sft_job
    job = make(tmp_path, model, scheduler="cosine", **more.get(kind, {}))
    results = judged(tmp_path, job, train(job))
    wrong = {id: text for id, text in results.items() if not text.startswith(("PASS", "NOT_APPLICABLE"))}
    # Random models that see twelve examples twice: what advises may say so.
    assert set(wrong) <= {"training.starvation", "training.loss", "dpo.learnt"}, wrong
    assert len(results) >= 12 and ("training.overfit" not in wrong or kind != "lora")
    if kind == "lora":
        assert results["training.validation"] == "PASS: 4 examples of 2 groups were kept out"
        assert results["training.data"] == "PASS: trained on all 8 granted examples"


@pytest.mark.parametrize(
    ("make", "parameters"),
    [
        pytest.param(sft_job, {"validation_share": 0.3, "epochs": 3}, marks=pytest.mark.slow),
        (dpo_job, ADAPTER | {"target_modules": ("q_proj", "v_proj"), "snapshot_steps": 2}),
    ],
)
def test_training_that_is_killed_goes_on_and_ends_as_if_it_had_not_been(
    tmp_path: Path, model: Path, make: Callable[..., Job], parameters: dict[str, Any]
) -> None:
    arguments = parameters | {"checkpoint_steps": 2}
    whole = make(tmp_path / "whole", model, **arguments)
    train(whole)
    job = make(tmp_path / "killed", model, **arguments)
    steps: list[int] = []

    def progress(done: int, *_: Any, **__: Any) -> None:
        steps.append(done)
        if len(steps) == 5:
            raise SimulatedKill

    job.progress = progress  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(SimulatedKill):
        train(job)
    newest = job.folder / "trainer" / "checkpoint-4"
    # The kill came while it was written: the one before is taken.
    (newest / "optimizer.pt").write_bytes((newest / "optimizer.pt").read_bytes()[:-10])
    again = Job(job.folder, job.order)
    done = train(again)
    assert done.facts["resumed_from"] == 2
    for path in whole.out.glob("*.jsonl"):
        assert digest_file(again.out / path.name) == digest_file(path), path.name
    assert digest_tree(again.out / "checkpoint") == digest_tree(whole.out / "checkpoint")
    assert not (job.folder / "trainer").exists()


def _dead(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """Have the optimiser make steps of a share of the rate that is logged; 0 makes none."""
    import torch

    step: Any = torch.optim.AdamW.step

    def smaller(self: Any, closure: Any = None) -> Any:
        rates = [group["lr"] for group in self.param_groups]
        for group in self.param_groups:
            group["lr"] *= factor
        result = step(self, closure) if factor else None
        for group, rate in zip(self.param_groups, rates, strict=True):
            group["lr"] = rate
        return result

    monkeypatch.setattr(torch.optim.AdamW, "step", smaller)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
@pytest.mark.parametrize(
    "factor", [0.0, *(pytest.param(number, marks=pytest.mark.slow) for number in (1e-6, 1e-3)), 1.0]
)
def test_an_optimiser_that_is_dead_fails_and_one_that_lives_passes(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, factor: float, seed: int
) -> None:
    """After one pass the weights alone show it; in a second one the loss stays to seven digits, or falls."""
    if factor < 1:
        _dead(monkeypatch, factor)
    job = sft_job(tmp_path / "one", model, seed=seed, epochs=1)
    results = judged(tmp_path / "one", job, train(job))
    assert results["training.moved"].split(":")[0] == ("FAIL" if factor < 1 else "PASS"), results["training.moved"]
    if factor == 1e-3:
        return
    job = sft_job(tmp_path / "two", model, seed=seed, epochs=2)
    results = judged(tmp_path / "two", job, train(job))
    assert results["training.loss"].split(":")[0] == ("FAIL" if factor < 1 else "PASS"), results["training.loss"]
    assert results["training.moved"].split(":")[0] == ("FAIL" if factor < 1 else "PASS"), results["training.moved"]


@pytest.mark.parametrize(
    ("make", "more", "factor"),
    [
        pytest.param(
            *(make, more, factor),
            id=f"{factor}-{make.__name__}-more{n}",
            marks=[] if (n, factor) in ((0, 1e-3), (2, 1.0)) else [pytest.mark.slow],
        )
        for factor in (1e-3, 1.0)
        for n, (make, more) in enumerate([(sft_job, ADAPTER), (dpo_job, {}), (dpo_job, ADAPTER)])
    ],
)
def test_adapters_and_pairs_move_as_far_as_their_rates_too(
    tmp_path: Path,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[..., Job],
    more: dict[str, Any],
    factor: float,
) -> None:
    if factor < 1:
        _dead(monkeypatch, factor)
    job = make(tmp_path, model, epochs=1, **more)
    results = judged(tmp_path, job, train(job))
    assert results["training.moved"].split(":")[0] == ("FAIL" if factor < 1 else "PASS"), results["training.moved"]


@pytest.mark.parametrize("epochs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_rate_at_which_nothing_can_be_learnt_fails(tmp_path: Path, model: Path, epochs: int) -> None:
    job = sft_job(tmp_path, model, epochs=epochs, learning_rate=1e-9)
    results = judged(tmp_path, job, train(job))
    assert results["training.loss"].startswith("FAIL"), results["training.loss"]
    assert "nothing can be learnt" in results["training.loss"], results["training.loss"]
    assert results["training.moved"].startswith("PASS"), results["training.moved"]
