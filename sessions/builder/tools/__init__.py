"""The builder's tools as they are carried out: one function a tool, by its name in :mod:`specs.trail.builder_tools`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sessions.builder.tools import (
    helper_tools as delegating,
)
from sessions.builder.tools import (
    job_tools as jobs,
)
from sessions.builder.tools import (
    reading_tools as reading,
)
from sessions.builder.tools import (
    review_tools as asking,
)
from sessions.builder.tools import (
    stage_tools as acting,
)
from sessions.builder.tools.tool_context import Work

CARRY_OUT: dict[str, Callable[[Work, Any], str]] = {
    "read_spec": reading.read_spec,
    "list_artifacts": reading.list_artifacts,
    "read_artifact": reading.read_artifact,
    "read_metrics": reading.read_metrics,
    "propose_plan": acting.propose_plan,
    "write_recipe": acting.write_recipe,
    "launch_stage": acting.launch_stage,
    "job_status": jobs.job_status,
    "job_logs": jobs.job_logs,
    "run_checks": jobs.run_stage_checks,
    "ask_review": asking.ask_one_question,
    "request_review": asking.request_full_review,
    "adversarial_review": asking.review_claims,
    "propose_amendment": acting.propose_amendment,
    "write_note": acting.write_note,
    "delegate": delegating.delegate,
    "hand_in": acting.hand_in,
    "submit_stage": acting.submit_stage,
    "ask_person": acting.ask_person,
}
"""Each takes the work and its checked arguments and returns the result's text, or raises ``Refused``."""
