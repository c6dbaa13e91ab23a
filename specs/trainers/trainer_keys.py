"""What becomes of the keys of a TRL or Axolotl file; a key that is not named here is handed on as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Held = Literal["examples", "preferences", "texts"]
"""What the rows of the trained input are."""
CHECKPOINT, ROWS, SESSION_FOLDER = "the granted checkpoint", "the stage's input", "the folder that the session keeps"
NOWHERE = "nothing outside the sandbox can be reached"
LAST = "only the last weights are kept"
SINGLE_PROCESS = "it starts further processes or shards the weights, and the sandbox runs one"
OWN_CODE = "it would load code from elsewhere"


@dataclass(frozen=True)
class Trainer:
    """A tool whose files are understood."""

    name: str
    """The name that people use."""
    distribution: str
    marks: tuple[str, ...]
    """Keys that a file of this tool has, one of each pair in a tuple ``a|b``."""
    replacements: Mapping[str, str]
    """Replaced keys: by what. Peergate gives the value."""
    off: Mapping[str, tuple[Any, str]]
    """Keys that are taken out: the value that this amounts to, and why."""
    refused: Mapping[str, str]
    """Keys that no file may set: why."""
    harmless: tuple[str, ...] = ()
    """Keys whose text may look like a path."""

    def matches(self, keys: set[str]) -> bool:
        """Return whether a file with these keys at its top is one of this tool."""
        return all(keys & set(mark.split("|")) for mark in self.marks)


_SAVED: dict[str, tuple[Any, str]] = {
    "save_strategy": ("no", LAST),
    "save_steps": (None, LAST),
    "save_total_limit": (None, LAST),
    "save_only_model": (None, LAST),
    "resume_from_checkpoint": (None, "a job begins with the granted checkpoint"),
    "hub_model_id": (None, NOWHERE),
    "hub_revision": (None, NOWHERE),
    "hub_strategy": (None, NOWHERE),
    "trust_remote_code": (False, OWN_CODE),
}

TRL = Trainer(
    name="TRL",
    distribution="trl",
    marks=("model_name_or_path", "dataset_name|datasets"),
    replacements={
        "model_name_or_path": CHECKPOINT,
        "model_revision": CHECKPOINT,
        **dict.fromkeys(
            ("dataset_name", "dataset_config", "dataset_train_split", "dataset_test_split", "dataset_text_field"), ROWS
        ),
        **dict.fromkeys(("datasets", "dataset_streaming", "streaming", "test_split_size"), ROWS),
        "output_dir": SESSION_FOLDER,
        "seed": "the registered seed",
        "data_seed": "the registered seed",
        "use_cpu": "the stage's `gpu`",
    },
    off=_SAVED
    | {"push_to_hub": (False, NOWHERE), "report_to": ("none", NOWHERE), "save_on_each_node": (False, LAST)}
    | dict.fromkeys(
        (
            *("hub_token", "hub_private_repo", "hub_always_push", "run_name", "logging_dir"),
            *("project", "trackio_space_id", "trackio_static_space_id", "trackio_bucket_id"),
        ),
        (None, NOWHERE),
    ),
    refused={
        "env": "the sandbox sets the variables",
        "chat_template_path": "the checkpoint keeps the template of its base",
        "load_best_model_at_end": LAST,
        **dict.fromkeys(
            (
                "accelerate_config",
                "num_processes",
                "num_machines",
                "deepspeed",
                "fsdp",
                "fsdp_config",
                "parallelism_config",
            ),
            SINGLE_PROCESS,
        ),
    },
    harmless=("eos_token", "pad_token"),
)

AXOLOTL = Trainer(
    name="Axolotl",
    distribution="axolotl",
    marks=("base_model", "datasets|pretraining_dataset"),
    replacements={
        **dict.fromkeys(("base_model", "base_model_config", "revision_of_model", "tokenizer_config"), CHECKPOINT),
        **dict.fromkeys(("datasets", "pretraining_dataset", "test_datasets"), ROWS),
        "output_dir": SESSION_FOLDER,
        "dataset_prepared_path": "a folder of the sandbox",
        "chat_template": "the template of the granted checkpoint",
        "seed": "the registered seed",
    },
    off=_SAVED
    | dict.fromkeys(
        (
            *(
                "wandb_project",
                "wandb_entity",
                "wandb_watch",
                "wandb_name",
                "wandb_run_id",
                "wandb_log_model",
                "wandb_mode",
            ),
            *("mlflow_tracking_uri", "mlflow_experiment_name", "mlflow_run_name", "hf_mlflow_log_artifacts"),
            *("comet_api_key", "comet_workspace", "comet_project_name", "comet_experiment_key", "comet_mode"),
            *("comet_online", "comet_experiment_config", "otel_metrics_host", "otel_metrics_port"),
            *("use_wandb", "use_mlflow", "use_comet", "use_tensorboard", "use_otel_metrics", "push_dataset_to_hub"),
            *("trackio_project_name", "trackio_run_name", "trackio_space_id", "use_trackio", "hf_use_auth_token"),
        ),
        (None, NOWHERE),
    )
    | {
        "saves_per_epoch": (None, LAST),
        "save_first_step": (False, LAST),
        "dynamic_checkpoint": (None, LAST),
        "auto_resume_from_checkpoints": (False, "a job begins with the granted checkpoint"),
        "save_safetensors": (True, "weights are taken as safetensors only"),
    },
    refused={
        "lora_model_dir": "a job begins with the granted checkpoint",
        "chat_template_jinja": "the checkpoint keeps the template of its base",
        "tokens": "the checkpoint keeps the vocabulary of its base",
        "load_best_model_at_end": LAST,
        "trainer_cls": OWN_CODE,
        "train_on_inputs": "the rows of the stage say what is learned: the assistant's last turn",
        **dict.fromkeys(
            (
                *("deepspeed", "fsdp", "fsdp_config", "fsdp_version", "fsdp_final_state_dict_type"),
                "fp8_enable_fsdp_float8_all_gather",
                *("use_ray", "ray_run_name", "ray_num_workers", "resources_per_worker"),
                *("tensor_parallel_size", "context_parallel_size", "sequence_parallel_degree"),
                *("dp_shard_size", "dp_replicate_size"),
            ),
            SINGLE_PROCESS,
        ),
    },
    harmless=("special_tokens",),
)

TRAINERS = (TRL, AXOLOTL)
_LAST_TURN = "the rows of the stage say what is learned: the assistant's last turn, with its end"
DATASET_SETTINGS: dict[str, tuple[tuple[Any, ...], str]] = {
    "roles_to_train": ((["assistant"], ["gpt"], ["gpt", "assistant"], ["assistant", "gpt"]), _LAST_TURN),
    "train_on_eos": (("turn", "last"), _LAST_TURN),
    "train_on_eot": (("turn", "last"), _LAST_TURN),
    "message_field_training": ((), "write `weight: 0` on the turns of the rows"),
    "message_field_training_detail": ((), _LAST_TURN),
    "drop_system_message": ((False,), "`drop: [system]` next to the path passes over a column; turns stay"),
    "split_thinking": ((False,), "the text of a turn is learned as it is"),
    "chat_template_jinja": ((), "the checkpoint keeps the template of its base"),
    "trust_remote_code": ((False,), OWN_CODE),
}
"""Keys of Axolotl's ``datasets`` that say what is learned: the values that say what the stage does too, and why no
others. The other keys say where rows lie and how their columns are called."""
LOSS_SETTINGS: dict[tuple[Held, str], tuple[tuple[Any, ...], str]] = {
    ("examples", "completion_only_loss"): ((True,), _LAST_TURN),
    ("texts", "completion_only_loss"): ((False,), "the rows are whole texts, and all of them is learned"),
    ("examples", "assistant_only_loss"): ((False,), f"{_LAST_TURN}; turns before it are not"),
    ("texts", "assistant_only_loss"): ((False,), "the rows are whole texts, without turns"),
}
"""Keys of TRL's SFT that say what is learned, by what the rows are: as :data:`DATASET_SETTINGS`."""
PREFERENCE_KEYS = frozenset(
    ("beta", "label_smoothing", "ld_alpha", "loss_weights", "f_divergence_type", "precompute_ref_log_probs")
    + (
        "disable_dropout",
        "discopop_tau",
        "f_alpha_divergence_coef",
        "precompute_ref_batch_size",
        "sync_ref_model",
        "ref_model_mixup_alpha",
        "ref_model_sync_steps",
        "use_weighting",
    )
)
"""Keys of TRL's DPO that its SFT does not have."""
EXAMPLE_KEYS = frozenset(
    (
        "packing",
        "packing_strategy",
        "eval_packing",
        "assistant_only_loss",
        "completion_only_loss",
        "dataset_kwargs",
        "shuffle_dataset",
    )
)
"""Keys of TRL's SFT that its DPO does not have."""
RL = ("dpo", "ipo", "orpo", "simpo")
"""Axolotl's ``rl`` over pairs of a chosen and a rejected response."""
