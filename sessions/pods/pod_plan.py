"""What a pod is going to do, and what it may cost at most; nothing is connected to for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sessions.pods.install import Bundle
from sessions.pods.pod_file import PodFile, read_address
from specs.session.needed_packages import needed_extras, sandboxed_parts
from specs.session.reviewer_vendor import key_variable
from specs.session.session_spec import ResolvedSpec, SessionSpec
from specs.system.vendors.api_keys import Party, variable_of
from specs.system.vendors.parties import BuilderSpec, ReviewerSpec


def asking(spec: SessionSpec) -> list[tuple[Party, BuilderSpec | ReviewerSpec]]:
    """Return the builder and reviewers that ask a model through Peergate's clients, with their party."""
    parties: list[tuple[Party, BuilderSpec | ReviewerSpec]] = [("builder", spec.builder)]
    parties.extend(("reviewer", reviewer) for reviewer in spec.reviewers() if not reviewer.is_plugin)
    return [party for party in parties if party[1].asks_a_model]


def keys_of(spec: SessionSpec) -> tuple[list[str], list[str]]:
    """Return the variables whose keys the pod needs, and the variables that are passed on if they are set."""
    names = [(variable_of(party, value.vendor, value.base_url), value.base_url) for party, value in asking(spec)]
    brought = {name for reviewer in spec.reviewers() if reviewer.is_plugin and (name := key_variable(reviewer))}
    return sorted({name for name, url in names if not url} | brought), sorted({name for name, url in names if url})


def gpus_of(spec: SessionSpec) -> int:
    """Return the most GPUs that a stage of the spec wants."""
    wanted = [spec.resources, *(stage.resources for stage in spec.stages)]
    return max(resources.gpus or 0 if resources is not None else 0 for resources in wanted)


def plan(spec_path: Path, resolved: ResolvedSpec, bundle: Bundle, pod: PodFile, name: str) -> dict[str, Any]:
    """Return the plan: steps, what ends the pod, and what it costs at most, in USD."""
    spec, address = resolved.spec, read_address(pod.host)
    needed, perhaps = keys_of(spec)
    keys = [*needed, *(f"{perhap} (if it is set)" for perhap in perhaps)]
    setup = f"install Peergate [{', '.join(needed_extras(spec))}] under {pod.root}, from a wheel of this one"
    hand_over = f"hand over {', '.join(keys)} on standard input, into the orchestrator's environment and no file"
    key = f"pinned: {pod.host_key}" if pod.host_key else "shown once for confirmation"
    steps = [
        f"connect to {address.destination}{f':{address.port}' if address.port else ''} (host key {key})",
        "check Python, clock, open files, root, writing and reading there, free room"
        + (f", {pod.gpus} GPUs" if pod.gpus else "")
        + (f", the model {spec.model.source}" if spec.model.source.startswith("hub:") else ""),
        f"use the Peergate of {pod.environment}" if pod.environment else setup,
        "check Peergate, its packages"
        + (" and bubblewrap" if sandboxed_parts(spec) else "")
        + f" there, and the import of torch, within {pod.torch_import_s:g} s",
        *([f"fetch {source.removeprefix('hub:')} there, at one revision" for source in hub_sources(spec)]),
        f"send {len(bundle.files)} files, {bundle.size / 1e6:.1f} MB: the spec and the files it names",
        *([hand_over] if keys else []),
        f"start session '{name}' detached, with HOME and all caches under {pod.root}",
        "pull trail and files here at every gate, and keep the signed head",
    ]
    return {
        "session": name,
        "spec": str(spec_path),
        "registration": resolved.registration(),
        "host": pod.host,
        "root": pod.root,
        "steps": steps,
        "ends": ends(pod),
        "cost": cost(spec, pod),
        "keys": [*needed, *perhaps],
    }


def ends(pod: PodFile) -> list[str]:
    """Return the rules that end the pod."""
    texts: list[str] = []
    if pod.max_cost_usd is not None and pod.usd_per_hour is not None:
        hours = f"after {pod.max_cost_usd / pod.usd_per_hour:.2f} h" if pod.usd_per_hour else "never, it is free"
        texts.append(f"price: when it has cost {pod.max_cost_usd:g} USD, {hours}")
    if pod.idle_minutes is not None:
        texts.append(f"idle: when the session has not run for {pod.idle_minutes:g} minutes")
    if pod.dead_man_minutes is not None:
        texts.append(f"dead man: when no one was attached for {pod.dead_man_minutes:g} minutes")
    if not texts:
        return ["only `peergate pod down` ends it"]
    then = f"runs `{pod.shutdown}`" if pod.shutdown else "ends its processes; the machine stays and you end it"
    return [*texts, f"then the session is paused, there are {pod.grace_minutes:g} minutes to pull, and it {then}"]


def cost(spec: SessionSpec, pod: PodFile) -> dict[str, Any]:
    """Return the most that may be spent; None for an amount without a bound."""
    budget, price = spec.budget, pod.usd_per_hour
    facts: dict[str, Any] = {"session_usd": budget.max_cost_usd, "session_hours": budget.max_hours}
    notes: list[str] = []
    if price is None:
        notes.append("no usd_per_hour is stated: what the machine costs besides the session is not bounded here")
    elif price != budget.machine_usd_per_hour:
        notes.append(f"the spec counts {budget.machine_usd_per_hour:g} USD an hour for jobs, the pod file {price:g}")
    if pod.max_cost_usd is not None:
        notes += shortfalls(spec, pod)
    if price is not None and pod.max_cost_usd is None:
        hours = budget.max_hours + ((pod.idle_minutes or 0) + pod.grace_minutes) / 60
        if pod.idle_minutes is not None and pod.dead_man_minutes is None:
            notes.append(f"while it runs without a pause: {hours * price:.2f} USD for the machine")
        notes.append("no max_cost_usd is stated: the machine has no price cap")
    return facts | {"usd_per_hour": price, "machine_usd": pod.max_cost_usd, "notes": notes}


def hub_sources(spec: SessionSpec) -> list[str]:
    """Return the sources of a session's weights that are fetched from the hub."""
    sources = [source.source for source in (spec.model, spec.control) if source is not None]
    return [source for source in dict.fromkeys(sources) if source.startswith("hub:")]


def shortfalls(spec: SessionSpec, pod: PodFile) -> list[str]:
    """Return how the pod's price cap ends a session before its own budget does."""
    cap, price, budget = pod.max_cost_usd, pod.usd_per_hour, spec.budget
    if cap is None:
        return []
    if price and cap / price < budget.max_hours:
        return [
            f"the pod ends after {cap / price:.1f} h, the session may take {budget.max_hours:g} h and cost "
            f"{budget.max_cost_usd:g} USD: what is unfinished then is lost; {price * budget.max_hours:.0f} USD as "
            "max_cost_usd of the pod file would last"
        ]
    if not price and cap < budget.max_cost_usd:
        return [f"the pod ends at {cap:g} USD, the session may cost {budget.max_cost_usd:g} USD"]
    return []


def lines(messages: dict[str, Any]) -> list[str]:
    """Return the printed lines of a plan."""
    bound = messages["cost"]
    machine = "not bounded" if bound["machine_usd"] is None else f"{bound['machine_usd']:g} USD"
    return [
        f"{messages['session']} on {messages['host']}",
        *(f"  {number}. {step}" for number, step in enumerate(messages["steps"], 1)),
        "it ends automatically:",
        *(f"  - {end}" for end in messages["ends"]),
        "it costs at most:",
        f"  machine: {machine}",
        f"  session: {bound['session_usd']:g} USD in {bound['session_hours']:g} h (its budget: jobs, models, reviews)",
        *(f"  - {note}" for note in bound["notes"]),
    ]
