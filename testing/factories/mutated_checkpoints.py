"""Ways to spoil a good checkpoint, each with the layer and the rule that must find it."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from testing.fixtures.tiny_training import tiny_checkpoint
from training.rules.weight_files import tensors_of

Spoil = Callable[[Path], None]
WEIGHTS = "model.safetensors"
LAST = "model.layers.1.mlp.down_proj.weight"


class Mutation(NamedTuple):
    """A change of a checkpoint folder and the flaws that must be found, ``layer.name``."""

    spoil: Spoil
    flaws: frozenset[str]
    base: bool = False
    """Whether only a comparison with the base shows it."""


def edited(name: str, change: Callable[[dict[str, Any]], Any]) -> Spoil:
    """Return a mutation that changes a JSON file."""

    def spoil(folder: Path) -> None:
        path = folder / name
        data = json.loads(path.read_bytes())
        change(data)
        path.write_text(json.dumps(data), encoding="utf-8")

    return spoil


def deleted(*names: str) -> Spoil:
    """Return a mutation that deletes files."""

    def spoil(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return spoil


def tensors(change: Callable[[dict[str, Any]], Any]) -> Spoil:
    """Return a mutation of the tensors, which are written again."""

    def spoil(folder: Path) -> None:
        from safetensors.torch import load_file, save_file

        current = load_file(folder / WEIGHTS)
        change(current)
        save_file(current, folder / WEIGHTS, {"format": "pt"})

    return spoil


def nudged(folder: Path) -> Path:
    """Move every weight a little, as training does; return the folder."""

    def move(current: dict[str, Any]) -> None:
        for name in current:
            current[name] = current[name] * 1.001

    tensors(move)(folder)
    return folder


def filled(value: float, *, all_of_it: bool = False) -> Spoil:
    """Return a mutation that writes a value into one place of a tensor, or all of it."""

    def change(current: dict[str, Any]) -> None:
        current[LAST].fill_(value) if all_of_it else current[LAST].view(-1)[7:8].fill_(value)

    return tensors(change)


def flipped(bit: int) -> Spoil:
    """Return a mutation that flips a bit of the first float32 of the embeddings."""

    def spoil(folder: Path) -> None:
        data = bytearray((folder / WEIGHTS).read_bytes())
        place = tensors_of(folder)["model.embed_tokens.weight"].start
        (word,) = struct.unpack_from("<I", data, place)
        struct.pack_into("<I", data, place, word ^ (1 << bit))
        (folder / WEIGHTS).write_bytes(data)

    return spoil


def _truncated(folder: Path) -> None:
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[: len(data) // 2])


def _pickled(name: str) -> Spoil:
    def spoil(folder: Path) -> None:
        import torch
        from safetensors.torch import load_file

        current = load_file(folder / WEIGHTS)
        (folder / WEIGHTS).unlink()
        torch.save(current, folder / name)

    return spoil


def _another_model(folder: Path) -> None:
    other = tiny_checkpoint(folder.parent / "other", seed=5)
    shutil.copyfile(other / WEIGHTS, folder / WEIGHTS)


def _log(*steps: dict[str, Any]) -> Spoil:
    def spoil(folder: Path) -> None:
        (folder / "trainer_state.json").write_text(json.dumps({"log_history": steps}), encoding="utf-8")

    return spoil


def _untied(current: dict[str, Any]) -> None:
    current["lm_head.weight"] = current["model.embed_tokens.weight"].flip(0).contiguous()


def _more_rows(current: dict[str, Any]) -> None:
    import torch

    embedding = current["model.embed_tokens.weight"]
    current["model.embed_tokens.weight"] = torch.cat([embedding, embedding[:5]])


def _index(folder: Path) -> None:
    current = {"metadata": {}, "weight_map": {LAST: "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(current), encoding="utf-8")


def _link(folder: Path) -> None:
    (folder / "chat_template.jinja").rename(folder.parent / "elsewhere.jinja")
    (folder / "chat_template.jinja").symlink_to(folder.parent / "elsewhere.jinja")


def _written(name: str, text: str) -> Spoil:
    def spoil(folder: Path) -> None:
        (folder / name).write_text(text, encoding="utf-8")

    return spoil


_START = {"SpecialToken": {"id": "<|start|>", "type_id": 0}}
BEGIN: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a template": lambda data: data.update(
        post_processor={
            "type": "TemplateProcessing",
            "single": [_START, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<|start|>": {"id": "<|start|>", "ids": [258], "tokens": ["<|start|>"]}},
        }
    ),
    "a sequence": lambda data: data.update(
        post_processor={
            "type": "Sequence",
            "processors": [
                {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
                {"type": "RobertaProcessing", "sep": ["<|end|>", 256], "cls": ["<|start|>", 258]},
            ],
        }
    ),
}
"""Ways in which tokenizer.json puts a token before every text."""


def doubled_begin(way: str) -> Spoil:
    """Return a mutation that lets both the tokenizer and the template begin a text with a token."""

    def spoil(folder: Path) -> None:
        edited("tokenizer_config.json", _set(bos_token="<|start|>"))(folder)
        if way == "add_bos_token":
            edited("tokenizer_config.json", _set(add_bos_token=True))(folder)
        else:
            edited("tokenizer.json", BEGIN[way])(folder)

    return spoil


def own_begin(folder: Path) -> None:
    """Let template and tokenizer begin a text with a token of its own, as Llama 3, Gemma and Mistral are published."""
    edited("tokenizer_config.json", _set(bos_token="<|pad|>", add_bos_token=True))(folder)
    _begun("{{ bos_token }}")(folder)


def _begun(text: str) -> Spoil:
    def spoil(folder: Path) -> None:
        path = folder / "chat_template.jinja"
        path.write_text(text + path.read_text(encoding="utf-8"), encoding="utf-8")

    return spoil


def _twice_by_template(folder: Path) -> None:
    own_begin(folder)
    _begun("{{ bos_token }}")(folder)


def _twice_by_tokenizer(folder: Path) -> None:
    edited("tokenizer_config.json", _set(bos_token="<|start|>"))(folder)
    edited("tokenizer.json", BEGIN["a template"])(folder)
    edited("tokenizer.json", lambda data: data["post_processor"]["single"].insert(0, _START))(folder)


def _set(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda data: data.update(values)


def _without(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda data: data.pop(name)


def _m(spoil: Spoil, *texts: str, base: bool = False) -> Mutation:
    return Mutation(spoil, frozenset(texts), base)


MUTATIONS: dict[str, Mutation] = {
    "tokenizer.json is missing": _m(deleted("tokenizer.json"), "structure.missing_file"),
    "tokenizer_config.json is missing": _m(deleted("tokenizer_config.json"), "structure.missing_file"),
    "both files of the tokenizer are missing": _m(
        deleted("tokenizer.json", "tokenizer_config.json"), "structure.missing_file"
    ),
    "generation_config.json is missing": _m(deleted("generation_config.json"), "structure.missing_file"),
    "weights are missing": _m(deleted(WEIGHTS), "structure.no_weights", "weights.unreadable"),
    "a pickle next to the index": _m(
        _pickled("pytorch_model.bin"), "structure.code", "structure.no_weights", "weights.unreadable"
    ),
    "a pickle named safetensors": _m(_pickled(WEIGHTS), "structure.pickle", "weights.unreadable"),
    "a script": _m(_written("modeling_other.py", "import os\n"), "structure.code"),
    "a link out of the folder": _m(_link, "structure.link"),
    "the index names a missing shard": _m(_index, "structure.stale_index"),
    "hidden_size is missing": _m(edited("config.json", _without("hidden_size")), "config.missing_key"),
    "num_key_value_heads is missing": _m(edited("config.json", _without("num_key_value_heads")), "config.missing_key"),
    "model_type is missing": _m(edited("config.json", _without("model_type")), "config.missing_key"),
    "architectures is missing": _m(edited("config.json", _without("architectures")), "config.missing_key"),
    "another architecture": _m(
        edited("config.json", _set(architectures=["FooForCausalLM"])), "config.architecture"
    ),
    "rope parameters are dropped": _m(edited("config.json", _without("rope_parameters")), "config.rope"),
    "other rope parameters": _m(
        edited("config.json", _set(rope_parameters={"rope_theta": 5000.0, "rope_type": "default"})),
        "lineage.rope",
        base=True,
    ),
    "code from a hub": _m(edited("config.json", _set(auto_map={"AutoModel": "x.Y"})), "config.remote_code"),
    "config.json is nested too deeply": _m(
        _written("config.json", '{"a":' * 60_000 + "0" + "}" * 60_000), "config.unreadable"
    ),
    "config.json has a key twice": _m(
        _written("config.json", '{"vocab_size": 1, "vocab_size": 2}'), "config.unreadable"
    ),
    "vocab_size beyond the embeddings": _m(edited("config.json", _set(vocab_size=384)), "weights.vocab_size"),
    "vocab_size below the tokenizer": _m(
        edited("config.json", _set(vocab_size=200)), "weights.vocab_size", "tokenizer.vocab_size",
        "generation.vocab_size",
    ),
    "more rows than vocab_size": _m(tensors(_more_rows), "weights.vocab_size"),
    "one layer too many": _m(edited("config.json", _set(num_hidden_layers=3)), "weights.missing_tensor"),
    "one layer too few": _m(edited("config.json", _set(num_hidden_layers=1)), "weights.unexpected_tensor"),
    "another width": _m(edited("config.json", _set(intermediate_size=128)), "weights.shape"),
    "a tensor is missing": _m(tensors(_without(LAST)), "weights.missing_tensor"),
    "untied, without a head": _m(edited("config.json", _set(tie_word_embeddings=False)), "weights.missing_tensor"),
    "tied, with a head of its own": _m(tensors(_untied), "weights.untied"),
    "truncated safetensors": _m(_truncated, "weights.unreadable"),
    "NaN": _m(filled(float("nan")), "weights.not_finite"),
    "infinity": _m(filled(float("inf")), "weights.not_finite"),
    "a flipped bit of an exponent": _m(flipped(30), "weights.too_large"),
    "a tensor of zeros": _m(filled(0.0, all_of_it=True), "weights.all_zero"),
    "weights of another model": _m(_another_model, "lineage.other_weights", base=True),
    "a token beyond the embeddings": _m(
        edited("tokenizer.json", lambda data: data["added_tokens"].append({"id": 900, "content": "<|more|>"})),
        "tokenizer.vocab_size",
    ),
    "merges of unknown tokens": _m(
        edited("tokenizer.json", lambda data: data["model"].update(merges=[["qq", "zz"]])), "tokenizer.merges"
    ),
    "another pre-tokenizer": _m(
        edited("tokenizer.json", _set(pre_tokenizer={"type": "Whitespace"})), "lineage.tokenizer", base=True
    ),
    "no end token": _m(edited("tokenizer_config.json", _without("eos_token")), "tokenizer.no_end"),
    "chat template is missing": _m(deleted("chat_template.jinja"), "template.missing"),
    "chat template of another model": _m(
        _written("chat_template.jinja", "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"),
        "template.unknown_token",
        "template.not_opened",
        "template.end",
    ),
    "chat template with other words": _m(
        _written("chat_template.jinja", "{% for m in messages %}Q: {{ m.content }}{% endfor %}"),
        "lineage.template",
        "template.not_opened",
        "template.end",
        base=True,
    ),
    "chat template that loses the user's words": _m(
        _written("chat_template.jinja", "{% for m in messages if m.role != 'user' %}{{ m.content }}{% endfor %}"),
        "template.left_out",
        "template.end",
    ),
    "chat template with the date": _m(_begun("{{ strftime_now('%d %b %Y') }}"), "template.date"),
    **{
        f"a first token written twice, by {way}": _m(doubled_begin(way), "template.begin_twice")
        for way in (*BEGIN, "add_bos_token")
    },
    "a first token written twice, by the template alone": _m(_twice_by_template, "template.begin_twice"),
    "a first token written twice, by the tokenizer alone": _m(_twice_by_tokenizer, "template.begin_twice"),
    "chat template that does not parse": _m(_written("chat_template.jinja", "{% for m in %}"), "template.syntax"),
    "stale generation config": _m(edited("generation_config.json", _set(eos_token_id=3)), "generation.end_token"),
    "generation config of a larger vocabulary": _m(
        edited("generation_config.json", _set(eos_token_id=[128001])), "generation.vocab_size"
    ),
    "NaN losses logged as 0.0": _m(
        _log({"step": 1, "loss": 2.5, "grad_norm": 1.0}, {"step": 2, "loss": 0.0, "grad_norm": float("nan")}),
        "training.not_a_number",
    ),
    "losses of 0.0 without gradients": _m(
        _log({"step": 1, "loss": 2.5}, {"step": 2, "loss": 0.0}), "training.not_a_number"
    ),
}  # fmt: skip

HEALTHY: dict[str, Spoil] = {
    "as saved": lambda folder: None,
    "a log that ends well": _log(
        {"step": 1, "loss": 2.5, "grad_norm": 1.0}, {"step": 2, "loss": 0.0, "grad_norm": 0.3}
    ),
    "a head that repeats the embeddings": tensors(
        lambda current: current.update({"lm_head.weight": current["model.embed_tokens.weight"].clone()})
    ),
    "trained a little": tensors(lambda current: current[LAST].add_(0.001)),
    "a first token that the template alone writes": edited("tokenizer_config.json", _set(add_bos_token=False)),
    "a first token that the tokenizer alone writes": edited(
        "tokenizer_config.json", _set(add_bos_token=True, bos_token="<|pad|>")
    ),
    "rope as older versions wrote it": edited(
        "config.json", lambda data: data.update(rope_theta=data.pop("rope_parameters")["rope_theta"])
    ),
}
"""Changes that leave a good checkpoint."""
