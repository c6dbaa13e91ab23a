"""Do the tensors match the configuration and the declared base, are they finite, and did training go well?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from training.rules.packaging.bounded_json import WrongFile, read_object
from training.rules.packaging.checkpoint_folder import CONFIG, TEMPLATE, TOKENIZER, CheckpointFolder
from training.rules.packaging.flaw import Flaw, NotApplicable, NotRun
from training.rules.packaging.gguf_settings import rope_of
from training.rules.packaging.model_families import EMBEDDING, HEAD, declared_tensors
from training.rules.weight_files import FLOATS, Tensor, WrongWeights, compare, quote_name, values_of

LARGEST = 1e6
"""No weight of a trained model is near it; a flipped bit of an exponent is far above."""
_MOST_LISTED = 5
_AGAIN = "take the last good checkpoint, and copy it again"


def layout(folder: CheckpointFolder) -> Iterator[Flaw]:
    """Yield where names and shapes are not those of the configuration; raises NotRun where that declares none."""
    try:
        tensors = folder.tensors
    except WrongWeights as error:
        yield Flaw("weights", "unreadable", _names(folder), str(error), _AGAIN)
        return
    try:
        config = folder.config
    except WrongFile as error:
        raise NotRun(f"{error}, so the tensors cannot be compared with it") from error
    if folder.is_adapter or isinstance(config.get("quantization_config"), dict):
        raise NotRun("an adapter's or quantized tensors differ from those declared in config.json")
    declared = declared_tensors(config)
    if declared is None:
        raise NotRun("config.json declares no known layout")
    ties = config.get("tie_word_embeddings") is True
    missing = sorted(declared.keys() - tensors.keys() - ({HEAD} if ties else set[str]()))
    for name in missing[:_MOST_LISTED]:
        fix = "write tie_word_embeddings: true, if they were tied" if name == HEAD else _AGAIN
        why = f"tensor {quote_name(name)} is missing: a loader would fill it with random numbers"
        yield Flaw("weights", "missing_tensor", _names(folder), why, fix)
    for name in sorted(tensors.keys() - declared.keys())[:_MOST_LISTED]:
        file = tensors[name].file.name
        why = f"tensor {quote_name(name)} of {file} is not declared by config.json: it would be ignored"
        whole = not missing and not file.startswith("model")
        fix = f"delete {file}: the whole model is next to it" if whole else "correct config.json, or drop the tensor"
        yield Flaw("weights", "unexpected_tensor", CONFIG, why, fix)
    shared = sorted(declared.keys() & tensors.keys())
    wrong = [name for name in shared if tensors[name].shape != declared[name]]
    for name in wrong[:_MOST_LISTED]:
        yield _shape(tensors[name], name, declared[name])
    if (
        ties
        and HEAD in tensors
        and EMBEDDING in tensors
        and not wrong
        and not _equal(tensors[HEAD], tensors[EMBEDDING])
    ):
        why = f"config.json ties the embeddings, and {HEAD} is another than {EMBEDDING}: one of them is ignored"
        yield Flaw("weights", "untied", _names(folder), why, "write tie_word_embeddings: false")


def _shape(tensor: Tensor, name: str, counts: tuple[int, ...]) -> Flaw:
    if name in (EMBEDDING, HEAD) and len(tensor.shape) == 2 and tensor.shape[1:] == counts[1:]:
        why = f"vocab_size is {counts[0]}, {name} has {tensor.shape[0]} rows"
        return Flaw("weights", "vocab_size", CONFIG, why, f"write vocab_size: {tensor.shape[0]}")
    why = f"tensor {quote_name(name)} has the shape {list(tensor.shape)}, config.json declares {list(counts)}"
    return Flaw("weights", "shape", tensor.file.name, why, "weights and config.json are of two models: take one")


def numbers(folder: CheckpointFolder) -> Iterator[Flaw]:
    """Yield tensors with values that are not finite, are impossibly large, or are all zero. Biases may be zero."""
    try:
        tensors = folder.tensors
    except WrongWeights as error:
        raise NotRun(str(error)) from error
    for name, tensor in sorted(tensors.items()):
        if tensor.dtype in FLOATS and (flaw := _numbers(name, tensor)) is not None:
            yield flaw


def _numbers(name: str, tensor: Tensor) -> Flaw | None:
    import numpy

    largest = 0.0
    for part in values_of(tensor):
        # NaN and infinity survive both.
        low, high = float(numpy.min(part)), float(numpy.max(part))
        if not (numpy.isfinite(low) and numpy.isfinite(high)):
            wrong = int((~numpy.isfinite(part)).sum())
            why = f"tensor {quote_name(name)} holds {wrong} values that are not finite"
            return Flaw("weights", "not_finite", tensor.file.name, why, _AGAIN)
        largest = max(largest, -low, high)
    if largest > LARGEST:
        why = f"tensor {quote_name(name)} holds {largest:.3g}, larger than any weight: a bit has flipped"
        return Flaw("weights", "too_large", tensor.file.name, why, _AGAIN)
    if largest == 0 and tensor.size and not name.endswith(".bias"):
        return Flaw("weights", "all_zero", tensor.file.name, f"tensor {quote_name(name)} is all zero", _AGAIN)
    return None


def _equal(tensor: Tensor, other: Tensor) -> bool:
    import numpy

    if (tensor.dtype, tensor.shape) != (other.dtype, other.shape):
        return False
    return all(
        numpy.array_equal(ours, theirs) for ours, theirs in zip(values_of(tensor), values_of(other), strict=True)
    )


def _names(folder: CheckpointFolder) -> str:
    return ", ".join(sorted(path.name for path in folder.path.glob("*.safetensors"))[:2]) or "model.safetensors"


LOG = "trainer_state.json"
_COMPUTING = (
    *("model_type", "architectures", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "head_dim", "hidden_act", "rms_norm_eps", "vocab_size", "max_position_embeddings"),
    *("attention_bias", "mlp_bias", "sliding_window", "use_sliding_window"),
)
"""Keys of config.json that decide what the weights compute."""
_COPY = "copy it from the base"


def find_description_flaws(folder: CheckpointFolder, base: CheckpointFolder) -> Iterator[Flaw]:
    """Yield where a checkpoint is described otherwise than its base: configuration, tokenizer, template."""
    try:
        yield from _find_config_flaws(folder.config, base.config)
    except WrongFile as error:
        raise NotRun(f"{error}, so base and checkpoint cannot be compared") from error
    yield from _same_text(folder, base)


def find_weight_flaws(folder: CheckpointFolder, base: CheckpointFolder) -> Iterator[Flaw]:
    """Yield where weights are not those of the base, trained."""
    try:
        change = compare(base.path, folder.path)
    except WrongWeights as error:
        yield Flaw("lineage", "other_model", "model.safetensors", f"is not the base, trained: {error}", "name its base")
        return
    except OSError as error:
        raise NotRun(f"the weights cannot be read: {error}") from error
    if not change.changed:
        why = f"all {change.tensors} tensors are those of the base: nothing was trained, or the base was copied"
        yield Flaw("lineage", "untrained", "model.safetensors", why, "copy the trained checkpoint, or name its base")
    matrices = [name for name, tensor in folder.tensors.items() if len(tensor.shape) > 1]
    if 2 * len(change.replaced) > len(matrices):
        why = (
            f"{len(change.replaced)} of {len(matrices)} matrices are further from the base than zeros: "
            "these are the weights of another model"
        )
        yield Flaw("lineage", "other_weights", "model.safetensors", why, "name the base it was trained from")


def _find_config_flaws(new: dict[str, Any], old: dict[str, Any]) -> Iterator[Flaw]:
    for name in _COMPUTING:
        was, now = old.get(name), new.get(name)
        if was in (None, False) if now is None else was is None:
            continue
        if was != now:
            why = f"{name} is {quote_name(str(now))}, in the base {quote_name(str(was))}"
            yield Flaw("lineage", "config", CONFIG, why, f"write the base's {name}")
    if (was := rope_of(old)) != (now := rope_of(new)):
        why = f"positions are turned by {quote_name(str(now))}, in the base by {quote_name(str(was))}"
        yield Flaw("lineage", "rope", CONFIG, why, "copy rope_parameters of the base")


def _same_text(folder: CheckpointFolder, base: CheckpointFolder) -> Iterator[Flaw]:
    if folder.has(TOKENIZER) and base.has(TOKENIZER):
        try:
            ours, theirs = _encodes(folder), _encodes(base)
        except (WrongFile, KeyError, TypeError) as error:
            raise NotRun(f"a tokenizer cannot be read: {quote_name(str(error))}") from error
        for part in ours:
            if ours[part] != theirs[part]:
                yield Flaw("lineage", "tokenizer", TOKENIZER, f"has another {part} than the base", _COPY)
                break
    try:
        now, was = folder.template, base.template
    except WrongFile as error:
        raise NotRun(str(error)) from error
    if was and now != was:
        why = "differs from the base's: the model would be prompted differently than in training"
        yield Flaw("lineage", "template", TEMPLATE, why, _COPY)


def _encodes(folder: CheckpointFolder) -> dict[str, Any]:
    tokenizer = folder.tokenizer
    return {
        "vocabulary": folder.token_ids,
        "merges": [
            tuple(value.split(" ") if isinstance(value, str) else value)
            for value in tokenizer["model"].get("merges") or ()
        ],
        "pre-tokenizer": tokenizer.get("pre_tokenizer"),
        "normalizer": tokenizer.get("normalizer"),
    }


def training_log(folder: CheckpointFolder) -> Iterator[Flaw]:
    """Yield the first step whose loss or gradient was no number; raises NotRun without a log of the Trainer.

    By default the Trainer logs a loss of NaN as 0.0 (``logging_nan_inf_filter``), which then looks like the best step.
    """
    if not folder.has(LOG):
        raise NotApplicable(f"no {LOG}")
    try:
        history: Any = read_object(folder.path / LOG).get("log_history")
    except WrongFile as error:
        yield Flaw("training", "unreadable", LOG, error.why, "keep the log of the Trainer as it was written")
        return
    steps = (
        [value for value in history if isinstance(value, dict) and "loss" in value] if isinstance(history, list) else []
    )
    for step in steps:
        loss, norm = step["loss"], step.get("grad_norm")
        empty = loss == 0 and (norm is None or norm == 0)
        if empty or not _finite(loss) or (norm is not None and not _finite(norm)):
            why = (
                f"step {quote_name(str(step.get('step')))} has loss {quote_name(str(loss))} and gradient norm "
                f"{quote_name(str(norm))}: a loss that is not a number is logged as 0.0"
            )
            fix = "train again with logging_nan_inf_filter=False and a lower learning rate, from the base"
            yield Flaw("training", "not_a_number", LOG, why, fix)
            return


def _finite(arguments: Any) -> bool:
    return isinstance(arguments, int | float) and math.isfinite(arguments)
