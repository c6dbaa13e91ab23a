"""The kind ``replay_traces`` and its metrics, computed again from the transcripts."""

from __future__ import annotations

from functools import partial

from specs.stages.base.artifacts import Preference
from specs.stages.base.kind import RequiredOutput, StageKind
from specs.stages.base.metric import Population, count, metric, rate
from specs.stages.traces.parameters import ReplayTracesParameters
from specs.stages.traces.rows import TraceAnswer

_ANSWERS = Population("all answers to the states that are due")
_STATES = Population("the states that are due", output="states")
_PAIRS = Population("pairs that follow from the answers", output="pairs", may_be_empty=True)
_of_answers = partial(rate, over=_ANSWERS, of="answers")
_of_states = partial(rate, over=_STATES, of="states")

TRACE_METRICS = (
    metric("trace_states", "states", count, over=_STATES),
    metric("trace_answers", "answers", count, over=_ANSWERS),
    _of_answers(
        "trace_whole",
        "answers that the limit of tokens did not cut off and that call only tools of the traces",
        lambda value: value.whole,
    ),
    _of_answers("trace_calls", "whole answers that call a tool", lambda value: value.whole and bool(value.tools)),
    _of_states("trace_agreement", "states in which two whole answers call the same tools", lambda value: value.agreed),
    _of_states(
        "trace_like_teacher", "states in which the trace did what most answers do", lambda value: value.like_trace
    ),
    metric("trace_pairs", "pairs", count, "higher", over=_PAIRS),
)

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
