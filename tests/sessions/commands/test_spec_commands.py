"""`peergate spec` on specs that leave things out, as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.sessions import called as peergate
from tests.factories.spec_files import write_spec


def test_the_resolved_form_has_the_seed_in_every_stage(tmp_path: Path) -> None:
    path = write_spec(tmp_path)
    text = path.read_text(encoding="utf-8").replace(", seed: 7}", "}").replace("  seeds: [7]\n", "")
    path.write_text(f"seed: 11\n{text}", encoding="utf-8")
    shown = json.loads(peergate("spec", "show", path, "--json").stdout)["resolved"]["spec"]
    assert shown["analysis"]["seeds"] == [11]
    assert [stage["parameters"]["seed"] for stage in shown["stages"]] == [11] * 5
    assert "seed" not in shown
