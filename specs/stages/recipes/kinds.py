"""The kind that runs a builder's script."""

from __future__ import annotations

from specs.stages.base.kind import ConditionalPorts, StageKind
from specs.stages.recipes.parameters import RecipeParameters

RECIPE = StageKind(
    name="recipe",
    parameters=RecipeParameters,
    inputs={},
    outputs={"rows": "rows", "files": "files"},
    conditional_ports=(
        ConditionalPorts("trains", outputs={"checkpoint": "checkpoint"}),
        ConditionalPorts("curates", outputs={"examples": "examples"}),
    ),
    job="sessions.jobs.sandbox.recipe_job:recipe",
    judge="reviews.stages.recipes.checks",
    runs_code=True,
    loads_model=False,
    review_focus=(
        "what the script reads, and what it leaves out of its inputs",
        "where numbers come from: computed from all rows, or chosen for a result",
        "where it trains: rows used, where loss and rate come from, what the weights could carry",
        "rows it writes: what a later stage will learn from them",
    ),
)

KINDS = (RECIPE,)
