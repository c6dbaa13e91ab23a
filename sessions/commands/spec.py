"""`peergate spec check | show`."""

from __future__ import annotations

import sys

from sessions.commands.output import print_json
from specs.errors import SpecError
from specs.loading import find_spec, load_spec


def check(spec: str, as_json: bool) -> None:
    """Check a spec; problems end with exit code 2."""
    path = find_spec(spec)
    try:
        resolved = load_spec(path)
    except SpecError as error:
        if not as_json:
            raise
        problems = [vars(problem) for problem in error.problems]
        print_json({"spec": str(path), "ok": False, "problems": problems})
        raise SystemExit(int(error.exit_code)) from None
    if as_json:
        print_json({"spec": str(path), "ok": True, "problems": [], "registration": resolved.registration()})
        return
    stages = ", ".join(stage.name for stage in resolved.spec.stages)
    print(f"{path}: ok\n  stages: {stages}\n  registration: {resolved.registration()}")


def show(spec: str, as_json: bool) -> None:
    """Show the resolved spec."""
    resolved = load_spec(find_spec(spec))
    data = resolved.model_dump(mode="json")
    if as_json:
        print_json({"registration": resolved.registration(), "resolved": data})
        return
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # pyright: ignore[reportAttributeAccessIssue]
    print(f"# registration: {resolved.registration()}")
    yaml.dump(data, sys.stdout)
