"""The kind that runs a builder's script."""

from __future__ import annotations

from specs.stages.kind import Added, StageKind
from specs.stages.recipes.parameters import RecipeParameters

RECIPE = StageKind(
    name="recipe",
    parameters=RecipeParameters,
    inputs={},
    outputs={"rows": "rows", "files": "files"},
    added=(
        Added("trains", outputs={"checkpoint": "checkpoint"}),
        Added("curates", outputs={"examples": "examples"}),
    ),
    job="sessions.jobs.sandbox.recipe_job:recipe",
    judge="reviews.stages.recipes.checks",
    runs_code=True,
    loads_model=False,
)

KINDS = (RECIPE,)
