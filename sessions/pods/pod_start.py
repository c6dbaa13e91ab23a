"""`peergate pod start`: hand over the keys and have the orchestrator started there, detached."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Literal

from sessions.pods.channel import Channel
from sessions.pods.connection import Connection, shell
from sessions.pods.pod_plan import keys_of
from sessions.pods.pod_record import PodRecord
from sessions.pods.protocol import Order, Rules, Status
from specs.errors import Blocked, PeergateError
from specs.session.session_spec import SessionSpec
from specs.text import plain
from specs.vendors.api_keys import find_key

START_S = 120.0


def secrets_of(spec: SessionSpec, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the keys the session needs, by the names of their variables.

    Raises:
        UserError: one is not set, or is none.
    """
    needed, perhaps = keys_of(spec)
    parties = [("builder", spec.builder), *(("reviewer", one) for one in spec.reviewers())]
    for party, one in parties:
        if one.asks_a_model:
            find_key("builder" if party == "builder" else "reviewer", one.vendor, one.base_url, environ)
    return {name: environ[name] for name in (*needed, *perhaps) if environ.get(name, "").strip()}


def rules_of(record: PodRecord) -> Rules:
    """Return the rules of a pod file, as the keeper follows them."""
    pod = record.pod
    return Rules(
        usd_per_hour=pod.usd_per_hour,
        max_cost_usd=pod.max_cost_usd,
        idle_minutes=pod.idle_minutes,
        dead_man_minutes=pod.dead_man_minutes,
        grace_minutes=pod.grace_minutes,
        shutdown=pod.shutdown,
    )


def start(
    connection: Connection,
    record: PodRecord,
    secrets: Mapping[str, str],
    answer: Literal["retry", "approve", "stop"] | None,
    reason: str,
) -> dict[str, Any]:
    """Start the session, or go on with it; returns the orchestrator's pid, and whether the session was there before.

    Raises:
        Blocked: it runs already, an answer was given where nothing is asked, or the pod says why else it does not.
        PeergateError: the pod said nothing that is an answer.
    """
    order = Order(
        python=record.python,
        spec=record.spec,
        profile=record.profile,
        answer=answer,
        reason=reason,
        secrets=dict(secrets),
        rules=rules_of(record),
    )
    words = shell(record.python, "-P", "-m", "sessions.pods.remote.pod_entry", "start", record.root, record.name)
    done = connection.run(words, order.canonical(), seconds=START_S)
    try:
        told = json.loads(done.out)
        if "refused" in told:
            raise Blocked(f"the pod did not start it: {plain(str(told['refused']), 800)}", where=record.name)
        return {"pid": int(told["pid"]), "begun": bool(told["begun"])}
    except (ValueError, KeyError, TypeError) as error:
        raise PeergateError(f"the pod did not start it: {done.told or 'it said nothing'}", where=record.name) from error


def status_of(channel: Channel, log: int) -> tuple[Status, bytes]:
    """Return how the pod says that it stands, and what its log has from an offset on.

    Raises:
        PeergateError: the pod says something that is no status.
    """
    header, data = channel.ask("status", log=log)
    try:
        return Status.model_validate(header.get("status"), strict=True), data
    except ValueError as error:
        raise PeergateError("the pod says something that is no status") from error
