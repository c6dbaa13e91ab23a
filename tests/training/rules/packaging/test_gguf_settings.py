"""An export carries every setting of its checkpoint that changes what is computed; what is not known is said."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy
import pytest

from testing.fixtures.real_model import smollm2_checkpoint
from testing.fixtures.small_text import small_model
from testing.fixtures.tiny_training import tiny_checkpoint
from training.engines.gguf_file import write_gguf
from training.jobs.recipes.adopt_checkpoint import NotTaken, take_checkpoint
from training.rules.packaging.checkpoint_folder import CheckpointFolder
from training.rules.packaging.flaw import Flaw, NotRun
from training.rules.packaging.gguf_header import BLOCKS, GgufHeader, GgufTensor, read_header
from training.rules.packaging.gguf_settings import (
    COMPARED,
    FORCED,
    PENALTY,
    ROPE_TENSORS,
    SAMPLING,
    SIZES,
    rope_factors,
    rope_of,
    settings,
    unknown_settings,
)
from training.rules.packaging.gguf_values import values as gguf_values
from training.rules.packaging.ship_rules import apply, check_files
from training.rules.packaging.structure_rules import runs_code

LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "original_max_position_embeddings": 64,
          "low_freq_factor": 1.0, "high_freq_factor": 4.0}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 1e5, "factor": 4.0, "original_max_position_embeddings": 64}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("good") / "model")


def header_of(folder: Path) -> GgufHeader:
    """Return what a faithful export of a checkpoint states."""
    made = CheckpointFolder(folder)
    config = made.config
    answers: dict[str, Any] = {f"llama.{key}": config.get(name) for name, key in SIZES.items()}
    answers |= {"llama.rope.freq_base": rope_of(config)["rope_theta"], "tokenizer.ggml.add_bos_token": False}
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    answers |= {
        f"llama.{key}": width for key in ("attention.key_length", "attention.value_length", "rope.dimension_count")
    }
    for role in ("bos", "eos"):
        token = made.named_token(f"{role}_token")
        if token is not None:
            answers[f"tokenizer.ggml.{role}_token_id"] = made.token_ids[token]
    return GgufHeader(answers, {})


def written(folder: Path, name: str, **values: Any) -> None:
    record = json.loads((folder / name).read_bytes()) | values
    (folder / name).write_text(json.dumps(record), encoding="utf-8")


def flaws_of(folder: Path, change: Callable[[dict[str, Any]], object] = len, *tensors: str) -> set[str]:
    header = header_of(folder)
    change(header.metadata)
    return {
        flaw.name
        for flaw in settings(
            CheckpointFolder(folder),
            "m.gguf",
            header._replace(tensors={name: GgufTensor("F32", (2,), 0, 8) for name in tensors}),
            "llama",
        )
    }


def test_a_faithful_export_has_no_flaw(good: Path) -> None:
    assert flaws_of(good) == set()


@pytest.mark.parametrize("name", SIZES)
def test_every_size_that_is_absent_or_other_is_found(good: Path, name: str) -> None:
    key = f"llama.{SIZES[name]}"
    assert flaws_of(good, lambda answers: answers.pop(key)) == {"missing_key"}
    assert flaws_of(good, lambda answers: answers.update({key: 3})) == {"other_key"}


CHANGED: dict[str, tuple[dict[str, Any], str]] = {
    "llama3": ({"rope_parameters": LLAMA3}, "rope_scaling"),
    "yarn": ({"rope_parameters": YARN}, "rope_scaling"),
    "linear": ({"rope_parameters": {"rope_type": "linear", "rope_theta": 1e5, "factor": 2.0}}, "rope_scaling"),
    "older linear": ({"rope_parameters": None, "rope_theta": 1e5, "rope_scaling": {"type": "linear", "factor": 2}},
                     "rope_scaling"),
    "longrope": ({"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4}}, "rope_scaling"),
    "window": ({"sliding_window": 16}, "missing_key"),
    "activation": ({"hidden_act": "gelu"}, "activation"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGED)
def test_a_setting_that_the_export_lost_is_found(good: Path, tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(good, tmp_path / "model"))
    values, lost = CHANGED[name]
    written(folder, "config.json", **values)
    flaws: list[Flaw] = []
    with suppress(NotRun):
        flaws += settings(CheckpointFolder(folder), "m.gguf", header_of(folder), "llama")
    assert lost in {flaw.name for flaw in flaws}


def test_scaling_that_the_export_carries_is_no_flaw(good: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(good, tmp_path / "model"))
    written(folder, "config.json", rope_parameters=YARN)
    scaling = {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0}
    scaling |= {"llama.rope.scaling.original_context_length": 64}
    assert flaws_of(folder, lambda answers: answers.update(scaling)) == set()
    assert flaws_of(folder, lambda answers: answers.update(scaling | {"llama.rope.scaling.factor": 2.0})) == {
        "other_key"
    }
    written(folder, "config.json", rope_parameters=LLAMA3)
    assert flaws_of(folder, len, "rope_freqs.weight") == set()


@pytest.mark.parametrize(("key", "value"), [("bos_token_id", 3), ("add_bos_token", True)])
def test_another_beginning_is_found(good: Path, tmp_path: Path, key: str, value: Any) -> None:
    folder = Path(shutil.copytree(good, tmp_path / "model"))
    written(folder, "tokenizer_config.json", bos_token=next(iter(CheckpointFolder(folder).token_ids)))
    assert flaws_of(folder) == set()
    assert flaws_of(folder, lambda answers: answers.update({f"tokenizer.ggml.{key}": value})) == {"begin_token"}


def test_an_end_of_turn_that_is_not_carried_is_found(good: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(good, tmp_path / "model"))
    ids = CheckpointFolder(folder).token_ids
    other = next(id for text, id in ids.items() if text.isalpha())
    ends = json.loads((folder / "generation_config.json").read_bytes())["eos_token_id"]
    written(folder, "generation_config.json", eos_token_id=[ends, other])
    assert flaws_of(folder) == {"end_token"}
    assert flaws_of(folder, lambda answers: answers.update({"tokenizer.ggml.eot_token_id": other})) == set()


UNCOMPARED: dict[str, tuple[str, dict[str, Any]]] = {
    "a key of config.json": ("logit_scale", {"logit_scale": 0.5}),
    "layers of two kinds": ("sliding_attention", {"layer_types": ["sliding_attention", "full_attention"],
                                                  "sliding_window": 16}),
    "layers of two kinds, as Qwen says it": ("sliding_attention", {"max_window_layers": 1, "use_sliding_window": True,
                                                                   "sliding_window": 16}),
    "another attention": ("linear_attention", {"layer_types": ["linear_attention"]}),
    "yarn": ("beta_fast", {"rope_parameters": YARN | {"beta_fast": 16}}),
    "another scaling": ("dynamic", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4}}),
}  # fmt: skip


@pytest.mark.parametrize("name", UNCOMPARED)
def test_what_cannot_be_compared_is_unknown(name: str, good: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(good, tmp_path / "model"))
    word, values = UNCOMPARED[name]
    written(folder, "config.json", **values)
    with pytest.raises(NotRun, match=word):
        flaws_of(folder)


def test_every_key_of_generation_is_compared_or_the_callers_choice(good: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    keys = {key for key in transformers.GenerationConfig().to_dict() if not key.startswith("_")}
    assert keys <= FORCED.keys() | SAMPLING and not FORCED.keys() & SAMPLING
    folder = Path(shutil.copytree(good, tmp_path / "model"))
    generation = (folder / "generation_config.json").read_bytes()
    for key, neutral in FORCED.items():
        (folder / "generation_config.json").write_bytes(generation)
        written(folder, "generation_config.json", **{key: neutral})
        assert flaws_of(folder) == set(), key
        written(folder, "generation_config.json", **{key: [4] if neutral in (None, [], {}) else 3})
        assert flaws_of(folder) == {"forced"}, key
    (folder / "generation_config.json").write_bytes(generation)
    written(folder, "generation_config.json", repetition_penalty=1.1)
    assert flaws_of(folder, lambda metadata: metadata.update({PENALTY: 1.1})) == set()
    written(folder, "generation_config.json", key_of_next_year=1)
    with pytest.raises(NotRun, match="'key_of_next_year' of generation_config"):
        flaws_of(folder)


IDLE = {("default", "factor"), ("default", "original_max_position_embeddings"),
        ("linear", "original_max_position_embeddings")}  # fmt: skip
"""Settings that transformers does not read where positions are scaled in this way."""


def rope_outcome(folder: Path, kind: str, **values: Any) -> Any:
    """Return the flaws of an export that carries YARN as ``kind``, and its factors; None where that is unknown."""
    stated: dict[str, Any] = {"type": "none" if kind in ("default", "llama3") else kind, "factor": 4.0}
    carried = {f"llama.rope.scaling.{key}": value for key, value in stated.items()}
    carried |= {"llama.rope.freq_base": 1e5, "llama.rope.scaling.original_context_length": 64}
    own = LLAMA3 if kind == "llama3" else {}
    written(folder, "config.json", rope_parameters=own | YARN | {"rope_type": kind} | values)
    try:
        flaws = flaws_of(folder, lambda metadata: metadata.update(carried), *ROPE_TENSORS.get(kind, ()))
        return flaws, rope_factors(CheckpointFolder(folder).config)
    except NotRun:
        return None


def test_every_setting_of_rope_is_compared_or_unknown(good: Path, tmp_path: Path) -> None:
    rope = pytest.importorskip("transformers.modeling_rope_utils")
    folder = Path(shutil.copytree(good, tmp_path / "model"))
    for kind in ("default", *rope.ROPE_INIT_FUNCTIONS):
        faithful = rope_outcome(folder, kind)
        assert faithful is None or faithful[0] == set(), kind
        for key in {*rope.RopeParameters.__annotations__, "truncate"} - {"rope_type"}:
            if (kind, key) not in IDLE:
                changed = rope_outcome(folder, kind, **{key: 0.25})
                assert changed is None or changed != faithful, (kind, key)


def test_notes_of_the_library_change_nothing(good: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(good, tmp_path / "model"))
    written(folder, "config.json", _model_name_or_path="SmolLM2", _commit_hash="0" * 40, _attn_implementation="sdpa")
    assert flaws_of(folder) == set()


@pytest.mark.model
def test_every_key_of_the_demos_model_is_known() -> None:
    """The demo exports it: an unknown key would stop its last gate."""
    config = CheckpointFolder(smollm2_checkpoint()).config
    assert unknown_settings(config) == []
    assert unknown_settings(config | {"logit_scale": 0.5}) == ["logit_scale"]


@pytest.mark.parametrize("kind", ["Llama", "Mistral", "Qwen2", "Qwen3"])
def test_every_key_that_the_library_writes_is_compared_or_changes_nothing(kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    assert unknown_settings(getattr(transformers, f"{kind}Config")().to_dict()) == []


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("gguf", reason="the package gguf is not installed (extra demo)")
    folder = small_model(tmp_path_factory.mktemp("exported") / "model", chat=True)
    written(folder, "generation_config.json", repetition_penalty=1.1)
    write_gguf(folder, folder / "model.gguf", vocabulary=True)
    return folder


def seen(folder: Path) -> list[str]:
    return [outcome.why or str(outcome.flaws) for outcome in check_files(folder)
            if outcome.status == "FAIL" or (outcome.status == "NOT_RUN" and outcome.applies)]  # fmt: skip


OTHER: dict[str, dict[str, Any]] = {
    **{"architectures": {"architectures": ["Qwen2ForCausalLM"]}, "model_type": {"model_type": "mamba"}},
    **{"rope_scaling": {"rope_parameters": None, "rope_scaling": YARN}, "rope_parameters": {"rope_parameters": YARN}},
    **{"rope_theta": {"rope_parameters": None, "rope_theta": 7.0}, "hidden_act": {"hidden_act": "gelu"}},
    "partial_rotary_factor": {"rope_parameters": None, "rope_theta": 1e4, "partial_rotary_factor": 0.5},
    "sliding_window": {"sliding_window": 8},
    "use_sliding_window": {"use_sliding_window": True, "sliding_window": 8},
    "max_window_layers": {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    "layer_types": {"layer_types": ["chunked_attention"]},
    "quantization_config": {"quantization_config": {"quant_method": "gptq"}},
    "auto_map": {"auto_map": {"AutoModel": "x.Y"}},
}
"""What is written for a key that is no number."""


@pytest.mark.parametrize("key", sorted(COMPARED))
def test_a_changed_value_of_every_compared_key_is_seen(key: str, exported: Path, tmp_path: Path) -> None:
    assert seen(exported) == []
    folder = Path(shutil.copytree(exported, tmp_path / "model"))
    config = CheckpointFolder(folder).config
    written(folder, "config.json", **OTHER.get(key, {key: not config[key] if config.get(key) in (True, False) else 7}))
    if key == "eos_token_id":
        (folder / "generation_config.json").unlink()
    assert seen(folder)


def test_the_factors_of_llama3_are_those_that_the_library_computes(exported: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    rope = pytest.importorskip("transformers.modeling_rope_utils")
    folder = Path(shutil.copytree(exported, tmp_path / "model"))
    written(folder, "config.json", rope_parameters=LLAMA3)
    read = CheckpointFolder(folder)
    factors = rope_factors(read.config)
    theirs, _ = rope.ROPE_INIT_FUNCTIONS["llama3"](transformers.AutoConfig.from_pretrained(folder), "cpu")
    plain = 5e5 ** -(numpy.arange(len(factors)) / len(factors))
    assert numpy.allclose(plain / factors, theirs, rtol=1e-4, atol=0)
    assert {1.0, 8.0} < set(factors)
    for values, flaws in ((factors, set[str]()), ([*factors[:-1], 7.9], {"rope_scaling"}), ([1, 1], {"rope_scaling"})):
        writer = pytest.importorskip("gguf").GGUFWriter(folder / "factors.gguf", "llama")
        writer.add_tensor("rope_freqs.weight", numpy.array(values, "f4"))
        for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file):
            write()
        writer.close()
        assert {flaw.name for flaw in gguf_values(read, folder / "factors.gguf")} - {"left_out"} == flaws


def test_a_type_that_is_not_known_is_unknown_and_not_broken(tmp_path: Path) -> None:
    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    stated = text("t") + struct.pack("<IQ", 1, 32) + struct.pack("<IQ", 77, 0)
    (tmp_path / "m.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + stated + b"\0" * 64)
    assert read_header(tmp_path / "m.gguf").tensors["t"].dtype == "type 77"
    assert {"IQ4_NL", "MXFP4"} <= {name for name, _, _ in BLOCKS.values()}


UNREAD = {number: name for number, (name, values, _) in BLOCKS.items() if values <= 32} | {77: "type 77"}


@pytest.mark.parametrize("number", sorted(UNREAD.keys() - {0, 1, 8}))
def test_a_file_with_a_type_whose_values_cannot_be_read_is_unknown(number: int, exported: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(exported, tmp_path / "model"))
    data = bytearray((folder / "model.gguf").read_bytes())
    stem = b"blk.0.ffn_up.weight"
    at = data.index(stem) + len(stem) + 4 + 16
    assert data[at : at + 4] == struct.pack("<I", 0)
    data[at : at + 4] = struct.pack("<I", number)
    (folder / "model.gguf").write_bytes(data)
    outcome = next(outcome for outcome in check_files(folder) if outcome.layer == "gguf")
    assert (outcome.status, outcome.applies) == ("NOT_RUN", True)
    assert outcome.why == f"values of the types {UNREAD[number]} were not compared"


def test_a_layer_that_applies_and_was_not_run_is_distinguished_from_one_that_has_nothing_to_read(good: Path) -> None:
    applies = {outcome.layer: outcome.applies for outcome in check_files(good) if outcome.status == "NOT_RUN"}
    assert applies == dict.fromkeys(("training", "lineage", "digests", "gguf"), False)

    def unknown() -> Any:
        raise NotRun("unknown")

    assert apply("gguf", unknown).applies


def test_weights_of_the_base_are_no_trained_model(good: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(good, tmp_path / "model"))
    names = {flaw.name for outcome in check_files(folder, good) for flaw in outcome.flaws}
    assert names == {"untrained"}
    assert not [outcome for outcome in check_files(folder, good, trained=False) if outcome.flaws]


CODE = ("model.bin", "x.npz", "x.NPY", "x.pyc", "lib.so", "lib.so.1", "x.dll", "x.pkl", "x.joblib", "run.sh", "x.pt2")


@pytest.mark.parametrize("name", CODE)
def test_both_doors_refuse_whatever_can_run_code(name: str, good: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(good, tmp_path / "model"))
    (folder / name).write_bytes(b"x")
    assert "code" in {flaw.name for outcome in check_files(folder) for flaw in outcome.flaws}
    with pytest.raises(NotTaken, match="can run code"):
        take_checkpoint(folder, good, tmp_path / "adopted")


def test_files_of_a_checkpoint_are_no_code() -> None:
    names = ("model.safetensors", "config.json", "merges.txt", "tokenizer.model", "chat_template.jinja", "README.md")
    assert not any(map(runs_code, (*names, "model.gguf", "LICENSE", ".gitattributes")))


def mends_of(folder: Path) -> dict[str, str]:
    return {flaw.name: flaw.fix for outcome in check_files(folder) for flaw in outcome.flaws}


def test_mends_fit_what_is_there(good: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    shutil.copytree(good, index)
    placed = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
    (index / "model.safetensors.index.json").write_text(json.dumps(placed), encoding="utf-8")
    assert mends_of(index) == {"stale_index": "delete it"}
    adapter = tmp_path / "adapter"
    shutil.copytree(good, adapter)
    (adapter / "model.safetensors").rename(adapter / "adapter_model.safetensors")
    assert set(mends_of(adapter)) == {"adapter"} and "merge" in mends_of(adapter)["adapter"]
    quantized = tmp_path / "quantized"
    shutil.copytree(good, quantized)
    written(quantized, "config.json", quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True})
    assert set(mends_of(quantized)) == {"quantized"} and "dequantize" in mends_of(quantized)["quantized"]


STRANGE = (None, True, False, 0, -1, 1e308, float("inf"), "x", "", [], [1], {}, {"a": 1}, [[]], 10**30)


def test_strange_values_of_a_stranger_are_flaws_or_unknown_and_never_an_error(good: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(good, tmp_path / "model"))
    config = json.loads((folder / "config.json").read_bytes())
    header = header_of(good)
    names = [*config, "sliding_window", "head_dim", "rope_scaling", "rope_theta", "partial_rotary_factor"]
    for name in names:
        for value in STRANGE:
            (folder / "config.json").write_text(json.dumps(config | {name: value}), encoding="utf-8")
            with suppress(NotRun):
                list(settings(CheckpointFolder(folder), "m.gguf", header, "llama"))
    for key in (*header.metadata, "llama.rope.scaling.type", "llama.attention.sliding_window"):
        for value in STRANGE:
            list(
                settings(
                    CheckpointFolder(good), "m.gguf", header._replace(metadata=header.metadata | {key: value}), "llama"
                )
            )
