"""The environment variables that Peergate reads or sets. A test looks for each in the source, and for others there."""

from __future__ import annotations

from typing import NamedTuple

from sessions.reference.contract_fields import table


class Variable(NamedTuple):
    """One variable, who sets it and what it does."""

    name: str
    set_by: str
    text: str


VARIABLES = (
    Variable("PEERGATE_CACHE", "you", "Where converted models are kept; the platform's cache folder without it."),
    Variable("PEERGATE_DATABASE", "you", "Postgres address in which new sessions keep their trail."),
    Variable("OPENAI_API_KEY", "you", "Key for `vendor: openai` without a `base_url`, builder or reviewer."),
    Variable("ANTHROPIC_API_KEY", "you", "Key for `vendor: anthropic`, builder or reviewer."),
    Variable("PEERGATE_BUILDER_KEY", "you", "Key for a builder with a `base_url`, if its server wants one."),
    Variable("PEERGATE_REVIEWER_KEY", "you", "Key for a reviewer with a `base_url`, if its server wants one."),
    Variable("PEERGATE_PLACE", "you", "Folder or `s3://`, `gs://` address over which jobs move without a shared disk."),
    Variable("PEERGATE_JOB_PYTHON", "you", "Interpreter with Peergate on the machines that run jobs."),
    Variable("PEERGATE_JOB_ROOT", "you", "Where such a machine works; the user's cache without it."),
    Variable("PEERGATE_SKY_PYTHON", "you", "Interpreter of SkyPilot's own environment."),
    Variable("PEERGATE_SKY_TASK", "you", "SkyPilot task file with what only you know: setup, image, credentials."),
    Variable("RAY_ADDRESS", "you", "Dashboard of a Ray cluster, as for Ray's own tools."),
    Variable("RAY_API_SERVER_ADDRESS", "you", "The same; goes before `RAY_ADDRESS`."),
    Variable("RAY_AUTH_TOKEN", "you", "Token of that cluster."),
    Variable("RAY_AUTH_TOKEN_PATH", "you", "File that holds the token; `~/.ray/auth_token` without it."),
    Variable("HF_ENDPOINT", "you", "On a pod: the hub that is asked for `hub:` models. Jobs never download."),
    Variable("CUDA_VISIBLE_DEVICES", "you", "Which GPUs the jobs of this machine see."),
    Variable("PEERGATE_NOTE", "Peergate", "For `audit anchor --command`: the name the head would have in a folder."),
    Variable("PEERGATE_JOB", "Peergate", "Marks the processes of a job, so that what it leaves behind is ended."),
)


def environment_page() -> str:
    """Return the page."""
    rows = [(f"`{one.name}`", one.set_by, one.text) for one in VARIABLES]
    return (
        "# Environment variables\n\n"
        f"{table(('variable', 'set by', 'what it does'), rows)}\n\n"
        "A job gets named variables only, never a key. The reviewer's process gets the keys of its own vendors and\n"
        "nobody else does. A vendor's key is never sent to an address that a spec names.\n"
    )
