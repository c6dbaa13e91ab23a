"""The kind ``replay_traces``."""

from __future__ import annotations

from specs.stages.base.artifacts import Preference
from specs.stages.base.kind import RequiredOutput, StageKind
from specs.stages.traces.metrics import TRACE_METRICS
from specs.stages.traces.parameters import ReplayTracesParameters
from specs.stages.traces.rows import TraceAnswer

REPLAY_TRACES = StageKind(
    name="replay_traces",
    parameters=ReplayTracesParameters,
    inputs={"model": "checkpoint", "transcripts": "transcripts"},
    outputs={"rows": "rows", "pairs": "preferences"},
    rows={"rows": TraceAnswer, "pairs": Preference},
    metrics=TRACE_METRICS,
    job="training.jobs.traces.replay_traces:replay_traces",
    witness_prompts="training.jobs.traces.replay_traces:build_witness_prompts",
    judge="reviews.stages.traces.replay_traces",
    required_output=RequiredOutput("pairs", Preference),
    review_focus=(
        "whose turns are chosen, and whose are rejected: of what family, and under which terms",
        "pairs: is the chosen turn better, or only another; length of chosen against rejected",
        "states: which of the transcripts are left, and whether held-out prompts are among them",
    ),
)

KINDS = (REPLAY_TRACES,)
