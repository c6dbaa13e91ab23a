"""The courses of replicas, by the kind of their stage."""

from __future__ import annotations

from training.jobs.finetuning.replicas.course import Course
from training.jobs.finetuning.replicas.rollout_course import Prompts
from training.jobs.finetuning.replicas.text_courses import Examples, Pairs

COURSES: dict[str, type[Course]] = {"sft": Examples, "dpo": Pairs, "grpo": Prompts, "composer": Prompts}
