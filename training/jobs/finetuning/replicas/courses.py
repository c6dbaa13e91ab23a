"""The courses of replicas, by the kind of their stage."""

from __future__ import annotations

from training.jobs.finetuning.replicas.course import ReplicaCourse
from training.jobs.finetuning.replicas.rollout_course import PromptCourse
from training.jobs.finetuning.replicas.text_courses import ExampleCourse, PairCourse

COURSES: dict[str, type[ReplicaCourse]] = {
    "sft": ExampleCourse,
    "dpo": PairCourse,
    "grpo": PromptCourse,
    "composer": PromptCourse,
}
