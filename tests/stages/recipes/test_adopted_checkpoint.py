"""A checkpoint that a script left: what is taken over of it, and every way in which it is refused."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specs.system.digests import digest_tree
from testing.fixtures.tiny_training import tiny_checkpoint
from training.jobs.recipes.adopt_checkpoint import NotTaken, take_checkpoint
from training.rules.weight_files import WrongWeights, compare, tensors_of

Arrays = dict[str, Any]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama with tied weights, as Peergate saves it."""
    return tiny_checkpoint(tmp_path_factory.mktemp("base"))


def arrays(folder: Path) -> Arrays:
    from safetensors.numpy import load_file

    return load_file(folder / "model.safetensors")


def write(folder: Path, tensors: Arrays, name: str = "model.safetensors", **metadata: str) -> Path:
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / name, metadata or None)
    return folder


def moved(base: Path, by: float = 0.01) -> Arrays:
    """Return the base's weights with one tensor moved."""
    result = arrays(base)
    result["model.embed_tokens.weight"] = result["model.embed_tokens.weight"] + by
    return result


@pytest.fixture
def checkpoint_folder(base: Path, tmp_path: Path) -> Path:
    """A folder in which everything is as it should be: all files of the base, one tensor moved."""
    folder = tmp_path / "checkpoint"
    shutil.copytree(base, folder)
    return write(folder, moved(base), format="pt")


# ---- what is taken ------------------------------------------------------------------------------------------


def test_weights_saved_in_any_way_become_the_checkpoint_that_peergate_would_have_saved(
    base: Path, tmp_path: Path
) -> None:
    import torch
    from safetensors.torch import save_file

    from training.engines.checkpoint import load, save

    model, tokenizer = load(base)
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight.add_(0.01)
    save(model, tokenizer, tmp_path / "own")
    model.save_pretrained(tmp_path / "whole")
    tokenizer.save_pretrained(tmp_path / "whole")
    model.save_pretrained(tmp_path / "parts", max_shard_size="20KB")
    (tmp_path / "bare").mkdir()
    every = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    save_file(every, tmp_path / "bare" / "model.safetensors", {"note": "what no one asked for"})
    assert "lm_head.weight" in every
    assert len(list((tmp_path / "parts").glob("*.safetensors"))) > 1
    for name in ("whole", "parts", "bare"):
        change = take_checkpoint(tmp_path / name, base, tmp_path / f"{name}-kept")
        assert (change.tensors, change.changed, change.dtypes) == (20, 1, ("F32",))
        assert change.largest_in == "model.layers.0.mlp.up_proj.weight"
        assert digest_tree(tmp_path / f"{name}-kept") == digest_tree(tmp_path / "own")
    assert change.repeated == ("lm_head.weight",)


def test_a_base_as_a_hub_keeps_it_is_known_in_the_form_the_libraries_give_it(base: Path, tmp_path: Path) -> None:
    from training.engines.checkpoint import load

    hub = tmp_path / "hub"
    shutil.copytree(base, hub)
    config = json.loads((hub / "config.json").read_text())
    older = {name: value for name, value in config.items() if name not in ("dtype", "rope_parameters", "mlp_bias")}
    (hub / "config.json").write_text(json.dumps(older | {"torch_dtype": "float32", "rope_theta": 10000.0}))
    model, tokenizer = load(hub)
    model.lm_head.weight.data.add_(0.01)
    model.save_pretrained(tmp_path / "left")
    tokenizer.save_pretrained(tmp_path / "left")
    assert (tmp_path / "left" / "config.json").read_bytes() != (hub / "config.json").read_bytes()
    take_checkpoint(tmp_path / "left", hub, tmp_path / "kept")
    assert (tmp_path / "kept" / "config.json").read_bytes() == (hub / "config.json").read_bytes()


def test_only_numbers_are_taken_the_rest_is_the_base_s(base: Path, checkpoint_folder: Path, tmp_path: Path) -> None:
    config = json.loads((checkpoint_folder / "config.json").read_text())
    (checkpoint_folder / "config.json").write_text(
        json.dumps(config | {"transformers_version": "0", "use_cache": False})
    )
    (checkpoint_folder / "model.safetensors.index.json").write_text("not looked at")
    take_checkpoint(checkpoint_folder, base, tmp_path / "kept")
    saved = {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()}
    expected = {path.name: path.read_bytes() for path in base.iterdir()}
    assert saved.keys() == expected.keys()
    assert {name for name in saved if saved[name] != expected[name]} == {"model.safetensors"}


def test_tied_weights_that_the_base_writes_out_may_be_left_out(
    base: Path, checkpoint_folder: Path, tmp_path: Path
) -> None:
    both = tmp_path / "both"
    shutil.copytree(base, both)
    written_out = arrays(base)
    write(both, written_out | {"lm_head.weight": written_out["model.embed_tokens.weight"].copy()}, format="pt")
    assert take_checkpoint(checkpoint_folder, both, tmp_path / "kept").repeated == ("lm_head.weight",)
    config = json.loads((both / "config.json").read_text())
    (both / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    (checkpoint_folder / "config.json").unlink()
    with pytest.raises(NotTaken, match=r"^it lacks 'lm_head.weight', of the base$"):
        take_checkpoint(checkpoint_folder, both, tmp_path / "other")


# ---- what is refused ----------------------------------------------------------------------------------------


def text(name: str, content: str = "x") -> Callable[[Path], None]:
    """Leave one more file."""

    def spoil(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)

    return spoil


def setting(name: str, **changes: Any) -> Callable[[Path], None]:
    """Change entries of a configuration."""

    def spoil(folder: Path) -> None:
        data = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(data | changes))

    return spoil


def tensors(change: Callable[[Arrays], Arrays]) -> Callable[[Path], None]:
    """Change the weights."""

    def spoil(folder: Path) -> None:
        write(folder, change(arrays(folder)), format="pt")

    return spoil


def put_value(value: float) -> Callable[[Arrays], Arrays]:
    """Put one value into one tensor."""

    def change(result: Arrays) -> Arrays:
        result["model.norm.weight"][3] = value
        return result

    return change


def header(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Path], None]:
    """Change the header of the weights and leave their bytes."""

    def spoil(folder: Path) -> None:
        path = folder / "model.safetensors"
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        written = json.dumps(change(json.loads(data[8 : 8 + length]))).encode()
        path.write_bytes(len(written).to_bytes(8, "little") + written + data[8 + length :])

    return spoil


def as_bytes(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / "model.safetensors"
        path.write_bytes(change(path.read_bytes()))

    return spoil


def overlapping(results: dict[str, Any]) -> dict[str, Any]:
    names = sorted(name for name in results if name.endswith("norm.weight"))
    results[names[0]]["data_offsets"] = results[names[1]]["data_offsets"]
    return results


def template(folder: Path) -> None:
    path = folder / "chat_template.jinja"
    path.write_text(path.read_text().replace("assistant", "assistant, who is always right,"))


def vocabulary(folder: Path) -> None:
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace('"a":', '"zz":', 1))


def twice(folder: Path) -> None:
    result = arrays(folder)
    write(folder, {"model.norm.weight": result["model.norm.weight"]}, "model-00002-of-00002.safetensors")


def small(result: Arrays) -> Arrays:
    result["model.norm.weight"] = result["model.norm.weight"][:4].copy()
    return result


def renamed(result: Arrays) -> Arrays:
    result["model.norm.\x1b[2Jbias"] = result.pop("model.norm.weight")
    return result


def untied(result: Arrays) -> Arrays:
    return result | {"lm_head.weight": result["model.embed_tokens.weight"] * 2}


def whole_numbers(result: Arrays) -> Arrays:
    result["model.norm.weight"] = result["model.norm.weight"].astype("i4")
    return result


REFUSED: list[tuple[str, Callable[[Path], None], str]] = [
    ("a pickle", text("pytorch_model.bin"), "it left 'pytorch_model.bin', which can run code"),
    ("a pickled optimizer", text("optimizer.pt"), "it left 'optimizer.pt', which can run code"),
    ("python", text("modeling_llama.py"), "it left 'modeling_llama.py', which can run code"),
    ("a folder", text("sub/model.safetensors"), "it left 'sub': a checkpoint is one folder of files"),
    ("notes", text("README.md"), "it left 'README.md', which is not a file of a checkpoint"),
    ("weights of another name", text("adapter.safetensors"), "it left 'adapter.safetensors', which is not a file"),
    ("code in the configuration", setting("config.json", auto_map={"AutoModel": "x.y"}), "its own code (auto_map)"),
    ("code deeper", setting("config.json", rope_parameters={"auto_map": 1}), "names its own code (auto_map)"),
    ("code in the tokenizer", setting("tokenizer_config.json", auto_map={}),
     "tokenizer_config.json names its own code"),
    ("another architecture", setting("config.json", hidden_act="relu", bos_token_id=1), "'bos_token_id', 'hidden_act'"),
    ("another kind of model", setting("config.json", model_type="gpt2"),
     "not that of the base: 'model_type'; omit it"),
    ("a configuration that is none", text("config.json", "[1]"), "config.json is not a JSON object"),
    ("a long configuration", text("config.json", " " * 4_200_000),
     "config.json has 4200000 bytes, the limit is 4194304"),
    ("code at great depth", text("config.json", '{"a":' * 900 + '{"auto_map": 1}' + "}" * 900), "its own code"),
    ("a configuration too deep", text("config.json", "[" * 100_000), "config.json is not JSON"),
    ("another template", template, "chat_template.jinja is not that of the base; omit it"),
    ("a template elsewhere", setting("tokenizer_config.json", chat_template="x"), "tokenizer_config.json is not that"),
    ("another template file", text("chat_template.json", "{}"), "chat_template.json is not that of the base"),
    ("another vocabulary", vocabulary, "tokenizer.json is not that of the base; omit it, the base model's is used"),
    ("other sampling", setting("generation_config.json", temperature=9.0), "generation_config.json is not that of"),
    ("no weights", lambda folder: (folder / "model.safetensors").unlink(), "no weights (*.safetensors)"),
    ("half of a file", as_bytes(lambda data: data[:-9]), "model.safetensors is not a weight file"),
    ("bytes at the end", as_bytes(lambda data: data + b"more"), "model.safetensors is not a weight file"),
    ("a header that is none", as_bytes(lambda data: data[:8] + b"\xff" * 99 + data[107:]), "is not a weight file"),
    ("a header too long", as_bytes(lambda data: b"\xff" * 5 + b"\0" * 3 + data[8:]), "bytes, the limit is"),
    ("an empty file", as_bytes(lambda _: b""), "model.safetensors is not a weight file"),
    ("tensors that overlap", header(overlapping), "model.safetensors is not a weight file"),
    ("another shape", tensors(small), "tensor 'model.norm.weight' has the shape [4], in the base [32]"),
    ("another name", tensors(renamed), "it holds 'model.norm.bias', which the base does not have"),
    ("a tensor less", tensors(lambda result: result if not result.pop("model.norm.weight").size else result),
     "it lacks"),
    ("an output of its own", tensors(untied), "it holds 'lm_head.weight', which the base does not have"),
    ("a tensor twice", twice,
     "tensor 'model.norm.weight' is in model-00002-of-00002.safetensors and again in model.safe"),
    ("whole numbers", tensors(whole_numbers), "tensor 'model.norm.weight' is of type 'I32', in the base of type F32"),
    ("a value that is none", tensors(put_value(math.nan)),
     "tensor 'model.norm.weight' holds values that are not finite"),
    ("a value without end", tensors(put_value(-math.inf)),
     "tensor 'model.norm.weight' holds values that are not finite"),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "why"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_a_checkpoint_that_is_not_the_base_with_other_weights_is_refused(
    base: Path, checkpoint_folder: Path, tmp_path: Path, spoil: Callable[[Path], None], why: str
) -> None:
    spoil(checkpoint_folder)
    with pytest.raises(NotTaken) as caught:
        take_checkpoint(checkpoint_folder, base, tmp_path / "kept")
    message = str(caught.value)
    assert why in message and "\n" not in message and "\x1b" not in message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint"]


def test_what_was_not_trained_is_refused_in_any_precision(base: Path, checkpoint_folder: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        same = {name: torch.from_numpy(value).to(dtype) for name, value in arrays(base).items()}
        save_file(same, checkpoint_folder / "model.safetensors")
        with pytest.raises(NotTaken, match=r"^all 20 tensors are those of the base: nothing was trained$"):
            take_checkpoint(checkpoint_folder, base, tmp_path / "kept")
        same["model.norm.weight"][0] += 1
        save_file(same, checkpoint_folder / "model.safetensors")
        assert take_checkpoint(checkpoint_folder, base, tmp_path / f"kept-{dtype}").changed == 1


def test_without_a_folder_there_is_no_checkpoint(base: Path, tmp_path: Path) -> None:
    with pytest.raises(NotTaken, match="it left no folder 'checkpoint'"):
        take_checkpoint(tmp_path / "checkpoint", base, tmp_path / "kept")


# ---- what is measured ---------------------------------------------------------------------------------------


def test_the_change_is_what_the_formula_says(tmp_path: Path) -> None:
    import numpy

    old = write(
        tmp_path / "old",
        {"a": numpy.array([3, 4], "f4"), "b": numpy.array([[0, 0]], "f4"), "c": numpy.array([7], "i8")},
    )
    new = write(
        tmp_path / "new",
        {"a": numpy.array([3, 5], "f4"), "b": numpy.array([[0, 0]], "f4"), "c": numpy.array([7], "i8")},
    )
    change = compare(old, new)
    # |new - old| is 1, |old| is 5, |new| the root of 34.
    assert change.changed == 1 and change.largest_in == "a" and change.tensors == 3
    assert change.largest == pytest.approx(1 / math.sqrt(34), rel=1e-12) == change.whole
    assert change.bytes == 8 + 8 + 8 and change.dtypes == ("F32", "I64")
    away = write(
        tmp_path / "away",
        {"a": numpy.array([3, 4], "f4"), "b": numpy.array([[0, 9]], "f4"), "c": numpy.array([7], "i8")},
    )
    assert (compare(old, away).largest, compare(old, away).largest_in) == (1.0, "b")
    same = compare(old, old)
    assert (same.changed, same.largest, same.whole, same.largest_in) == (0, 0.0, 0.0, "")
    other = write(
        tmp_path / "other",
        {"a": numpy.array([3, 5], "f4"), "b": numpy.array([[0, 0]], "f4"), "c": numpy.array([8], "i8")},
    )
    with pytest.raises(WrongWeights, match="'c' of type 'I64' differs"):
        compare(old, other)


def test_rounding_is_that_of_the_library_that_trains(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    ties = torch.tensor([1.00390625, 1.01171875, -1.00390625, 1e-40, 3.3e38, 65504.0, 6e-8, 0.0, -0.0])
    old = torch.cat([torch.randn(9000) * 10 ** torch.randint(-6, 4, (9000,)), ties])
    save_file({"a": old}, tmp_path / "model.safetensors")
    for dtype in (torch.bfloat16, torch.float16):
        tensor = old[old.abs() < 60_000] if dtype == torch.float16 else old
        for name, values in (("old", tensor), ("new", tensor.to(dtype))):
            (tmp_path / name).mkdir(exist_ok=True)
            save_file({"a": values}, tmp_path / name / "model.safetensors")
        assert compare(tmp_path / "old", tmp_path / "new").changed == 0
        back = tensor.to(dtype).float()
        save_file({"a": back}, tmp_path / "old" / "model.safetensors")
        save_file({"a": tensor}, tmp_path / "new" / "model.safetensors")
        expected = float((tensor.double() - back.double()).norm() / max(tensor.double().norm(), back.double().norm()))
        assert compare(tmp_path / "old", tmp_path / "new").whole == pytest.approx(expected, rel=1e-12)
    if dtype == torch.float16:
        save_file({"a": old}, tmp_path / "old" / "model.safetensors")
        save_file({"a": torch.zeros(len(old), dtype=dtype)}, tmp_path / "new" / "model.safetensors")
        with pytest.raises(WrongWeights, match="'a' of the base is not finite as F16"):
            compare(tmp_path / "old", tmp_path / "new")


def test_a_weight_file_whose_header_says_too_much_is_not_read(tmp_path: Path) -> None:
    for entry in ({"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}, {"dtype": "F32", "shape": [2]}, [], None):
        written = json.dumps({"a": entry}).encode()
        (tmp_path / "model.safetensors").write_bytes(len(written).to_bytes(8, "little") + written + bytes(8))
        with pytest.raises(WrongWeights):
            tensors_of(tmp_path)
