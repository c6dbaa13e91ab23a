"""One wrong value is one message, for every parameter of every stage kind, those with computed defaults among them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from specs.lint.range_rules import _outside_limits  # pyright: ignore[reportPrivateUsage]
from specs.stages.explain import validate
from specs.stages.registry import STAGE_KINDS

COMPUTED = sorted(
    name
    for name, kind in STAGE_KINDS.items()
    if any(field.default_factory_takes_validated_data for field in kind.parameters.model_fields.values())
)


def test_some_kinds_have_defaults_that_are_computed() -> None:
    assert {"sft", "dpo"} <= set(COMPUTED)


@pytest.mark.parametrize("name", sorted(STAGE_KINDS))
def test_one_wrong_value_is_one_message(name: str) -> None:
    parameters: type[BaseModel] = STAGE_KINDS[name].parameters
    required = {"'" + field + "' is missing" for field, info in parameters.model_fields.items() if info.is_required()}
    for field in parameters.model_fields:
        contract = validate({field: {"no": {"such": "value"}}}, parameters)
        messages = (
            [problem for problem in contract if problem.message not in required] if isinstance(contract, list) else []
        )
        assert len({problem.loc[0] for problem in messages}) <= 1, (field, messages)
        assert not any("factory" in problem.message or "Undefined" in problem.message for problem in messages), (
            field,
            messages,
        )


@pytest.mark.parametrize("name", COMPUTED)
@pytest.mark.parametrize(("field", "value"), [("method", "dora"), ("batch_size", 0), ("epochs", "two")])
def test_a_slip_of_the_pen_says_what_it_is(name: str, field: str, value: Any) -> None:
    parameters = STAGE_KINDS[name].parameters
    if field not in parameters.model_fields:
        return
    contract = validate({field: value}, parameters)
    assert isinstance(contract, list)
    assert [problem.loc for problem in contract if not problem.message.endswith("is missing")] == [(field,)]


@pytest.mark.parametrize("name", COMPUTED)
def test_a_range_outside_the_limits_is_said_of_its_own_parameter(name: str) -> None:
    assert "must be greater than or equal to 1" in _outside_limits(
        STAGE_KINDS[name].parameters, "batch_size", int, 0.0, 4.0
    )
