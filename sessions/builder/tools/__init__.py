"""The builder's tools as they are carried out: one function a tool, by its name in :mod:`specs.trail.builder_tools`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sessions.builder.tools import (
    job_tools,
    reading_tools,
    review_tools,
    stage_tools,
)
from sessions.builder.tools.tool_context import Work

CARRY_OUT: dict[str, Callable[[Work, Any], str]] = {
    "read_spec": reading_tools.read_spec,
    "list_artifacts": reading_tools.list_artifacts,
    "read_artifact": reading_tools.read_artifact,
    "read_metrics": reading_tools.read_metrics,
    "propose_plan": stage_tools.propose_plan,
    "write_recipe": stage_tools.write_recipe,
    "launch_stage": stage_tools.launch_stage,
    "job_status": job_tools.job_status,
    "job_logs": job_tools.job_logs,
    "run_checks": job_tools.run_stage_checks,
    "ask_review": review_tools.ask_one_question,
    "request_review": review_tools.request_full_review,
    "adversarial_review": review_tools.review_claims,
    "propose_amendment": stage_tools.propose_amendment,
    "write_note": stage_tools.write_note,
    "delegate": stage_tools.delegate,
    "hand_in": stage_tools.hand_in,
    "submit_stage": stage_tools.submit_stage,
    "ask_person": stage_tools.ask_person,
}
"""Each takes the work and its checked arguments and returns the result's text, or raises ``Refused``."""
