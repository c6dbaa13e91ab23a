"""The environment variables that Peergate reads or sets; a test compares them with the source."""

from __future__ import annotations

from sessions.reference.contract_fields import table

VARIABLES = (
    ("PEERGATE_CACHE", "you", "Where converted models are kept; the platform's cache folder without it."),
    ("PEERGATE_DATABASE", "you", "Postgres address in which new sessions keep their trail."),
    ("OPENAI_API_KEY", "you", "Key for `vendor: openai` without a `base_url`, builder or reviewer."),
    ("ANTHROPIC_API_KEY", "you", "Key for `vendor: anthropic`, builder or reviewer."),
    ("PEERGATE_BUILDER_KEY", "you", "Key for a builder with a `base_url`, if its server wants one."),
    ("PEERGATE_REVIEWER_KEY", "you", "Key for a reviewer with a `base_url`, if its server wants one."),
    ("PEERGATE_PLACE", "you", "Folder or `s3://`, `gs://` address over which jobs move without a shared disk."),
    ("PEERGATE_JOB_PYTHON", "you", "Interpreter with Peergate on the machines that run jobs."),
    ("PEERGATE_JOB_ROOT", "you", "Where such a machine works; the user's cache without it."),
    ("PEERGATE_SKY_PYTHON", "you", "Interpreter of SkyPilot's own environment."),
    ("PEERGATE_SKY_TASK", "you", "SkyPilot task file with what only you know: setup, image, credentials."),
    ("RAY_ADDRESS", "you", "Dashboard of a Ray cluster, as for Ray's own tools."),
    ("RAY_API_SERVER_ADDRESS", "you", "The same; goes before `RAY_ADDRESS`."),
    ("RAY_AUTH_TOKEN", "you", "Token of that cluster."),
    ("RAY_AUTH_TOKEN_PATH", "you", "File that holds the token; `~/.ray/auth_token` without it."),
    ("HF_ENDPOINT", "you", "On a pod: the hub that is asked for `hub:` models. Jobs never download."),
    ("CUDA_VISIBLE_DEVICES", "you", "Which GPUs the jobs of this machine see."),
    ("PEERGATE_NOTE", "Peergate", "For `audit anchor --command`: the name the head would have in a folder."),
    ("PEERGATE_JOB", "Peergate", "Marks the processes of a job, so that what it leaves behind is ended."),
)
"""Name, who sets it, what it does."""


def environment_page() -> str:
    """Return the page."""
    rows = [(f"`{name}`", set_by, text) for name, set_by, text in VARIABLES]
    return (
        "# Environment variables\n\n"
        f"{table(('variable', 'set by', 'what it does'), rows)}\n\n"
        "A job gets named variables only, never a key. The reviewer's process gets the keys of its own vendors and\n"
        "nobody else does. A vendor's key is never sent to an address that a spec names.\n"
    )
