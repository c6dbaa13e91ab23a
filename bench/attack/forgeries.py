"""Forged entries, signed by a key that may sign them or by another, in a trail that agrees with them otherwise."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from bench.attack.forged_trail import WRONG_TREES, Original, Rewrite, Step, steps_of
from specs.system.digests import canonical_bytes
from specs.trail.entry import Entry, Role


class Forgery(NamedTuple):
    """Entries to be written, and whether a verifier has to refuse them."""

    what: str
    steps: list[Step]
    policy: Any = None
    harmful: bool = True
    size: int | None = None


Maker = Callable[[Original, random.Random], Forgery]


def entry_changed(original: Original, number: int, what: str, **changed: Any) -> Forgery:
    """Return the trail with one step changed; ``harmful=False`` if it may be accepted."""
    harmful = bool(changed.pop("harmful", True))
    steps = steps_of(original)
    steps[number] = steps[number]._replace(**changed)
    return Forgery(f"entry {number} ({original.entries[number].kind}): {what}", steps, harmful=harmful)


def _replace_text(old: str, new: str) -> Rewrite:
    def change(payload: bytes) -> bytes:
        assert old.encode() in payload, (old, payload)
        return payload.replace(old.encode(), new.encode(), 1)

    return change


def entry_of_kind(original: Original, chance: random.Random, *kinds: str) -> int:
    """Return the number of some entry of one of these kinds, or of any."""
    return chance.choice([entry.seq for entry in original.entries if not kinds or entry.kind in kinds])


# ---- the bytes of a statement ------------------------------------------------------------------------------------


def duplicate_names(original: Original, chance: random.Random) -> Forgery:
    """The log's key signs a verdict that who takes the last of two names, in any letter case, reads as a spend."""
    number = entry_of_kind(original, chance, "verdict", "plan", "decision", "human")
    kind = original.entries[number].kind
    spelling = chance.choice(["kind", "Kind", "KIND", "kInd"])
    pairs = [f'"kind":"{kind}"', f'"{spelling}":"spend"']
    if chance.random() < 0.5:
        pairs.reverse()
    return entry_changed(
        original, number, ",".join(pairs), payload=_replace_text(f'"kind":"{kind}"', ",".join(pairs)), role="log"
    )


def other_case(original: Original, chance: random.Random) -> Forgery:
    """Names in another letter case, which encoding/json matches too."""
    number = entry_of_kind(original, chance)
    name = chance.choice(["_type", "predicate", "predicateType", "subject", "body", "key", "kind", "prev_root", "seq"])
    other = chance.choice([name.upper(), name.capitalize(), name[:-1] + name[-1].upper(), name + "\u0301"])
    if other == name:
        other = name.upper()
    return entry_changed(original, number, f"{name} as {other}", payload=_with_name(name, other))


def _with_name(name: str, other: str) -> Rewrite:
    """Rename a member of the statement or of its predicate; what a body's members are called is for Peergate alone."""

    def change(payload: bytes) -> bytes:
        value = json.loads(payload)
        renamed = {other if at == name else at: element for at, element in value.items()}
        if "predicate" in renamed:
            renamed["predicate"] = {other if at == name else at: value for at, value in renamed["predicate"].items()}
        return json.dumps(renamed, ensure_ascii=False, separators=(",", ":")).encode()

    return change


def other_spelling(original: Original, chance: random.Random) -> Forgery:
    """The same or nearly the same statement in bytes that are not its canonical form."""
    number = entry_of_kind(original, chance)
    changes: dict[str, Rewrite] = {
        "a space": lambda data: data.replace(b":", b": ", 1),
        "a line end": lambda data: data + b"\n",
        "a byte order mark": lambda data: b"\xef\xbb\xbf" + data,
        "UTF-16": lambda data: data.decode().encode("utf-16-le"),
        "an escape": _replace_text('"kind"', '"\\u006bind"'),
        "an escaped slash in a type": _replace_text("https://", "https:\\/\\/"),
        "wrong UTF-8": lambda data: data.replace(b'"key":"', b'"key":"\xff', 1),
        "a surrogate": _replace_text('"key":"', '"key":"\\ud800'),
        "a surrogate as bytes": lambda data: data.replace(b'"key":"', b'"key":"\xed\xa0\x80', 1),
        "a control character": lambda data: data.replace(b'"key":"', b'"key":"\x01', 1),
        "members in another order": _reorder_keys,
        "something behind": lambda data: data + b"{}",
        "a comma too much": lambda data: data[:-1] + b",}",
        "nothing": lambda data: b"",
        "a list": lambda data: b"[" + data + b"]",
        "NaN": _replace_text('"schema_version":1', '"schema_version":NaN'),
        "two documents": lambda data: data + b"\n" + data,
        "deep": lambda data: b"[" * 20000,
    }
    name = chance.choice(sorted(changes))
    return entry_changed(original, number, name, payload=changes[name])


def _reorder_keys(payload: bytes) -> bytes:
    value = json.loads(payload)
    return json.dumps(
        {name: value[name] for name in reversed(value)}, ensure_ascii=False, separators=(",", ":")
    ).encode()


def other_numbers(original: Original, chance: random.Random) -> Forgery:
    """Numbers of the predicate in another spelling, type or value."""
    number = entry_of_kind(original, chance)
    spelled = chance.choice(["2.0", "2e0", "02", '"2"', "true", "3", "1", "-2", "+2", "null", "9007199254740993"])
    where = chance.choice(["schema_version", "seq"])
    value = 1 if where == "schema_version" else number
    if str(value) == spelled:
        spelled = f"{value}.0"
    return entry_changed(
        original, number, f"{where} {spelled}", payload=_replace_text(f'"{where}":{value}', f'"{where}":{spelled}')
    )


def other_type(original: Original, chance: random.Random) -> Forgery:
    """A predicateType that is not that of the kind."""
    number = entry_of_kind(original, chance)
    kind = original.entries[number].kind
    message = f"urn:peergate:trail:{kind}:v{original.entries[number].version}"
    other = chance.choice([
        "urn:peergate:trail:spend:v1", f"urn:peergate:trail:{kind}:v0", f"urn:peergate:trail:{kind}:v01",
        f"urn:peergate:trail:{kind}:v1.0", f"urn:peergate:trail:{kind}:v-1", f"urn:peergate:trail:{kind}:v",
        f"urn:peergate:trail:{kind}", f"urn:peergate:trail:{kind.upper()}:v1", "https://slsa.dev/provenance/v1", "",
        f"urn:peergate:trail:{kind}:v1_0", f"urn:peergate:trail:{kind}:v99999999999", f"{message}:v1",
        f"urn:peergate:trail:{kind}:v\u0661",
    ])  # fmt: skip
    if other == message:
        # Of its own kind a later version would be no harm.
        other = "urn:peergate:trail:pause:v1"
    return entry_changed(
        original, number, f"predicateType {other!r}", payload=_replace_text(f'"{message}"', json.dumps(other))
    )


def newer_version(original: Original, chance: random.Random) -> Forgery:
    """A later Peergate may write a later version: what it says cannot be judged, its place and signature can."""
    number = entry_of_kind(original, chance, "spend", "pause", "plan", "submit")
    changed = original.entries[number].model_copy(update={"version": chance.choice([9, 77, 999_999_999])})
    return entry_changed(original, number, f"version {changed.version}", entry=changed, harmful=False)


def other_members(original: Original, chance: random.Random) -> Forgery:
    """Members more, fewer, or of another type, in canonical form."""
    number = entry_of_kind(original, chance)
    changes: dict[str, Callable[[Any], Any]] = {
        "an unknown member": lambda value: value | {"z": 1},
        "an unknown member of the predicate": lambda value: _inside(value, z=1),
        "no subject": lambda value: {name: element for name, element in value.items() if name != "subject"},
        "no kind": lambda value: value | {"predicate": _without(value["predicate"], "kind")},
        "no session": lambda value: value | {"predicate": _without(value["predicate"], "session")},
        "an empty body": lambda value: _inside(value, body={"x": "sha256:" + "1" * 64}),
        "no body": lambda value: _inside(value, body=None),
        "a list as body": lambda value: _inside(value, body=[]),
        "a number as key": lambda value: _inside(value, key=5),
        "null as kind": lambda value: _inside(value, kind=None),
        "another statement type": lambda value: value | {"_type": "https://in-toto.io/Statement/v0.1"},
        "no policy": lambda value: _inside(value, policy=None),
        "an empty policy": lambda value: _inside(value, policy={}),
        "a list as policy": lambda value: _inside(value, policy=[]),
        "no subjects": lambda value: value | {"subject": []},
        "a subject less": lambda value: value | {"subject": value["subject"][1:]},
        "a subject more": lambda value: value | {"subject": [*value["subject"], value["subject"][0]]},
        "another subject": lambda value: value | {"subject": [_rename_key(value["subject"][0]), *value["subject"][1:]]},
        "prev_root in capitals": lambda value: _inside(value, prev_root=value["predicate"]["prev_root"].upper()),
        "prev_root without its algorithm": lambda value: _inside(value, prev_root=value["predicate"]["prev_root"][7:]),
    }
    name = chance.choice(sorted(changes))

    def change(data: bytes) -> bytes:
        return canonical_bytes(changes[name](json.loads(data)))

    return entry_changed(original, number, name, payload=change)


def _inside(value: Any, **changed: Any) -> Any:
    return value | {"predicate": value["predicate"] | changed}


def _without(value: Any, name: str) -> Any:
    return {element: value[element] for element in value if element != name}


def _rename_key(subject: Any) -> Any:
    return subject | {"name": "Trail"}


def other_time(original: Original, chance: random.Random) -> Forgery:
    """Times that are not number of nanoseconds, or are spelled otherwise."""
    number = entry_of_kind(original, chance)
    ns = original.entries[number].time_ns
    other = chance.choice([
        f'"+{ns}"', f'" {ns}"', f'"0{ns}"', ns, '"-1"', f'"{ns[:3]}_{ns[3:]}"', f'"{ns}.0"', '""',
        '"99999999999999999999999999"', '"\u0661\u0662"', "null", f'"{ns}\\n"',
    ])  # fmt: skip
    return entry_changed(
        original, number, f"time {other}", payload=_replace_text(f'"time_ns":"{ns}"', f'"time_ns":{other}')
    )


# ---- what a canonical entry says ---------------------------------------------------------------------------------


def another_session(original: Original, chance: random.Random) -> Forgery:
    """An entry of another session."""
    number = entry_of_kind(original, chance)
    name = chance.choice(["other", "Small", "small ", ""])
    return entry_changed(
        original, number, f"of session {name!r}", entry=original.entries[number].model_copy(update={"session": name})
    )


def time_backwards(original: Original, chance: random.Random) -> Forgery:
    """An entry dated before its predecessor."""
    number = chance.randrange(1, len(original.entries))
    before = int(original.entries[number - 1].time_ns) - chance.choice([1, 10**9, 10**18])
    entry = original.entries[number].model_copy(update={"time_ns": str(max(before, 0))})
    return entry_changed(original, number, "dated before the entry before it", entry=entry)


def another_signer(original: Original, chance: random.Random) -> Forgery:
    """An entry signed by a role that may not sign it."""
    number = entry_of_kind(original, chance)
    roles: tuple[Role, ...] = ("log", "builder", "reviewer", "human")
    mine = {"plan": "builder", "call": "builder", "note": "builder", "submit": "builder", "verdict": "reviewer"}
    role = chance.choice([role for role in roles if role != mine.get(original.entries[number].kind, "log")])
    return entry_changed(original, number, f"signed by {role}", role=role)


def another_tree(original: Original, chance: random.Random) -> Forgery:
    """An entry that names another tree before it."""
    number = entry_of_kind(original, chance)
    return entry_changed(
        original,
        number,
        "names another tree",
        entry=original.entries[number].model_copy(update={"previous": next(iter(WRONG_TREES))}),
    )


def key_twice(original: Original, chance: random.Random) -> Forgery:
    """A second entry under a key that is there."""
    number = chance.randrange(2, len(original.entries) - 1)
    steps = steps_of(original)
    spend = new_entry(original, number, original.entries[chance.randrange(number)].key)
    return Forgery(f"entry {number}: key {spend.key} twice", [*steps[:number], Step(spend), *steps[number:]])


def new_entry(original: Original, number: int, key: str, kind: str = "spend") -> Entry:
    """Return an entry that was not there."""
    body: dict[str, Any] = {"by": "ada"} if kind in ("pause", "resume") else {"stage": "base"}
    time = original.entries[number - 1].time_ns
    return original.entries[1].model_copy(
        update={"kind": kind, "version": 1, "key": key, "body": body, "time_ns": time, "policy": None}
    )


def after_the_end(original: Original, chance: random.Random) -> Forgery:
    """An entry after the end of the session."""
    kind = chance.choice(["spend", "pause", "resume", "close", "keys"])
    added = Step(new_entry(original, len(original.entries), f"late/{kind}", kind))
    return Forgery(f"a {kind} entry after the end", [*steps_of(original), added])


def another_beginning(original: Original, chance: random.Random) -> Forgery:
    """A trail that begins with something else."""
    kind = chance.choice(["spend", "Open", "keys", "close"])
    entry = original.entries[0].model_copy(update={"kind": kind, "version": 1})
    return entry_changed(original, 0, f"the trail begins with {kind!r}", entry=entry, role="log")


def cut(original: Original, chance: random.Random) -> Forgery:
    """The log's key alone: an open session, which nothing says was longer."""
    size = chance.randrange(1, len(original.entries))
    return Forgery(f"cut to {size} entries", steps_of(original), size=size, harmful=False)


def missing_evidence(original: Original, chance: random.Random) -> Forgery:
    """An entry names evidence that never existed."""
    names = {"verdict": "verdict", "decision": "decision", "checks": "checks", "exit": "log", "call": "arguments"}
    number = entry_of_kind(original, chance, *names)
    entry = original.entries[number]
    body = entry.body | {names[entry.kind]: "sha256:" + f"{chance.getrandbits(256):064x}"}
    return entry_changed(
        original, number, "names evidence that is not there", entry=entry.model_copy(update={"body": body})
    )


def another_body(original: Original, chance: random.Random) -> Forgery:
    """A body of another shape, signed by who may: what it means is not for both; whether it holds is."""
    number = entry_of_kind(original, chance)
    entry = original.entries[number]
    body: dict[str, Any] = copy.deepcopy(entry.body)
    names = [*sorted(body), "outputs", "data", "files", "reviewer", "new"]
    value = chance.choice([
        None, True, 0, -5, 1.5, 1e21, 1e-7, 0.1, 2**53 - 1, "", "x", "person", "sha256:" + "0" * 64,
        "SHA256:" + "0" * 64, "sha256:" + "0" * 64 + "\n", [], {}, ["sha256:" + "1" * 64],
        {"a": "sha256:" + "2" * 64},
        {"a": {"digest": "sha256:" + "3" * 64, "stored": True}}, {"a": {"digest": "sha256:" + "3" * 64, "stored": 1}},
        {"\ue000": 1, "\U0001f600": 2, "a": "sha256:" + "4" * 64}, "\u2028\x7f\x00\"\\/",
        _nest_value(62), _nest_value(63),
    ])  # fmt: skip
    name = chance.choice(names)
    body[name] = value
    signer: Role | None = None
    return entry_changed(
        original,
        number,
        f"body.{name} = {str(value)[:60]!r}",
        entry=entry.model_copy(update={"body": body}),
        harmful=False,
        role=signer,
    )


def _nest_value(depth: int) -> Any:
    value: Any = "sha256:" + "5" * 64
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def control(original: Original, chance: random.Random) -> Forgery:
    """All of it signed again and nothing changed."""
    return Forgery("nothing changed", steps_of(original), harmful=False)
