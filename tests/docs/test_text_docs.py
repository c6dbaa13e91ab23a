"""docs/explanation/pipeline-text.md: its example is valid, and what it says in numbers is what the code has."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from ruamel.yaml import YAML

from reviews.stages.generation import checks
from specs.session.design import ModelSource
from specs.session.thresholds import Thresholds
from specs.stages.generation.parameters import SampleResponsesParameters
from specs.stages.metric_catalog import metrics_of
from specs.stages.registry import Stage
from training.jobs.generation.self_instruct import PROBED
from training.rules.generation.sentinels import SENTINELS

PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "pipeline-text.md").read_text(encoding="utf-8")


def test_the_example_is_valid_and_its_criteria_are_measured_there() -> None:
    found = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    given: dict[str, Any] = YAML(typ="safe").load(found[1])
    assert ModelSource.model_validate(given["model"]).kind == "base"
    assert ModelSource.model_validate(given["control"]).kind == "instruct"
    stages = [TypeAdapter[Any](Stage).validate_python(stage) for stage in given["stages"]]
    assert [stage.kind for stage in stages] == ["base_model_check", "self_instruct", "sample_responses"]
    for stage in stages:
        assert stage.gate.criteria and {one.metric for one in stage.gate.criteria} <= set(metrics_of(stage.kind))
        assert all(one.get_bound() for one in stage.gate.criteria)


def test_every_check_of_guard_is_on_the_page_with_its_threshold() -> None:
    assert set(re.findall(r"`(base_model_check\.\w+)`", PAGE)) == {
        one.id for one in checks.CHECKS if one.kinds == ("base_model_check",)
    }
    assert (Thresholds().base_follows, Thresholds().control_follows) == (0.4, 0.5)
    assert "more than 0.4" in PAGE and "fewer than half" in PAGE


def test_what_is_counted_on_the_page() -> None:
    kinds = Counter(one.kind for one in SENTINELS)
    assert kinds == {"command": 9, "completion": 4} and "Thirteen sentinels, nine commands" in PAGE
    assert PROBED == 3 and "Three calls are made three times" in PAGE
    assert all(name in PAGE for name in ("runaway_rate_v1", "runaway_rate_v2", "`cleaning`"))
    assert SampleResponsesParameters().abort_after > 0 and "`abort_after`" in PAGE
