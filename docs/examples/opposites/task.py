"""A task of inspect_ai: which word is the opposite, and nothing but that word."""

from inspect_ai import Task, task
from inspect_ai.dataset import json_dataset
from inspect_ai.scorer import match
from inspect_ai.solver import generate


@task
def opposites(data: str) -> Task:
    """Ask for each opposite; an answer is right if it is the word and nothing else."""
    return Task(dataset=json_dataset(data), solver=generate(), scorer=match(location="exact"))
