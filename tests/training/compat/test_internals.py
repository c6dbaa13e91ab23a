"""One contract a library: the pinned version has what we use of its private names."""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testing.fixtures.small_text import small_model
from training.compat import torch_internals, torchft_internals, transformers_internals, trl_internals
from training.engines.checkpoint import load

CONSTRAINTS = Path(__file__).parents[3] / "constraints.txt"


def require_pin(package: str, minor: str) -> None:
    """Fail unless the pin and the installed version are of the minor version."""
    pins = dict(line.split("==") for line in CONSTRAINTS.read_text().split() if "==" in line)
    for release in (pins[package], version(package)):
        assert release.split(".")[:2] == minor.split("."), f"{package} {release}: look at training/compat again"


def methods_missing(kind: type[Any], names: tuple[str, ...]) -> list[str]:
    return [name for name in names if not inspect.isfunction(getattr(kind, name, None))]


def test_torchft_has_what_replicas_patch_and_read() -> None:
    require_pin("torchft", torchft_internals.VERSION)
    manager: Any = import_module("torchft.manager")
    transport, library = import_module("torchft.checkpointing.http_transport"), import_module("torchft._torchft")
    assert manager.ManagerServer is library.ManagerServer
    assert "ThreadingHTTPServer" in {kind.__name__ for kind in transport._IPv6HTTPServer.__mro__}
    assert inspect.isfunction(transport.HTTPTransport.address)
    sources = inspect.getsource(import_module("torchft.local_sgd").DiLoCo) + inspect.getsource(manager.Manager)
    for name in ("_sync_every", "_min_replica_size", "_quorum_id"):
        assert f"self.{name}" in sources
    assert torchft_internals.sync_every(SimpleNamespace(_sync_every=4)) == 4


def test_transformers_has_what_trainers_extend_and_read() -> None:
    require_pin("transformers", transformers_internals.VERSION)
    trainer: Any = import_module("transformers").Trainer
    assert not methods_missing(trainer, (*transformers_internals.OVERRIDDEN, "_load_from_checkpoint"))
    assert "self._train_batch_size" in inspect.getsource(sys.modules[trainer.__module__])
    config = import_module("transformers").LlamaConfig(attn_implementation="eager")
    assert transformers_internals.computing_attention(config) == "eager"
    assert transformers_internals.supports_fused_attention(import_module("transformers").LlamaForCausalLM)


def test_trl_has_what_trainers_extend_and_read() -> None:
    require_pin("trl", trl_internals.VERSION)
    for path, names in trl_internals.OVERRIDDEN.items():
        module, _, name = path.rpartition(".")
        kind = getattr(import_module(module), name)
        assert not methods_missing(kind, names), path
    grpo = inspect.getsource(import_module("trl.trainer.grpo_trainer"))
    assert "self._step" in grpo
    trainer = SimpleNamespace(_step=3, _stored_metrics={"train": [1.0]})
    trl_internals.count_pass(trainer)
    with trl_internals.keeping_metrics(trainer):
        trainer._stored_metrics["train"].append(2.0)
    assert trl_internals.passes_of(trainer) == 4 and trainer._stored_metrics == {"train": [1.0]}


def test_only_labelled_tokens_are_scored_and_loss_and_gradients_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    utils: Any = import_module("trl.trainer.utils")
    assert inspect.getsource(utils).count("_use_triton(") == 1
    scored: list[int] = []
    apply = utils._ChunkedLogProbFunction.apply

    def count_tokens(hidden: Any, *arguments: Any) -> Any:
        scored.append(len(hidden))
        return apply(hidden, *arguments)

    # A training before it in this process has replaced it.
    monkeypatch.setattr(utils, "_use_triton", import_module("trl.kernels.chunked_logprob")._use_triton)
    monkeypatch.setattr(utils._ChunkedLogProbFunction, "apply", count_tokens)
    ids = torch.arange(24).reshape(3, 8) % 50
    labels = ids.masked_fill(torch.arange(8) < 5, -100)
    losses: list[float] = []
    gradients: list[Any] = []
    for patched in (False, True):
        if patched:
            trl_internals.score_labelled_tokens()
        model = load(small_model(tmp_path / "model"))[0]
        utils.add_fused_lm_head(model)
        loss = model(input_ids=ids, labels=labels, fused_lm_head=True).loss
        loss.backward()
        losses.append(loss.item())
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    assert scored == [21, 9]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6) and float(gradients[0].abs().max()) > 1e-3
    assert float((gradients[0] - gradients[1]).abs().max()) < 1e-5


def test_a_method_that_is_gone_is_noticed() -> None:
    assert methods_missing(dict, ("no_such_method",)) == ["no_such_method"]


def test_packed_weights_give_the_same_products_and_nothing_else_is_packed(tmp_path: Path) -> None:
    import torch

    require_pin("torch", torch_internals.VERSION)
    plain, packed = (load(small_model(tmp_path / "model"))[0] for _ in range(2))
    layers = sum(type(module) is torch.nn.Linear for module in plain.modules())
    assert torch_internals.pack_linear_layers(packed) == layers > 0
    for rows in (1, 3, 40):
        ids = torch.arange(rows * 7).reshape(rows, 7) % 50
        with torch.inference_mode():
            ours, theirs = packed(input_ids=ids).logits, plain(input_ids=ids).logits
        assert 0 < float((ours - theirs).abs().max()) < 1e-4 * float(theirs.abs().max()) or torch.equal(ours, theirs)
    with torch.no_grad():
        packed.lm_head.weight.zero_()
        assert float(packed(input_ids=ids).logits.abs().max()) > 0, "the packed weights were not used"
    assert torch_internals.pack_linear_layers(plain.to(torch.bfloat16)) == 0
