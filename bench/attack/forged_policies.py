"""Forged envelopes, policies and changes of keys."""

from __future__ import annotations

import base64
import copy
import json
import random
import re
from collections.abc import Callable
from typing import Any

from bench.attack.forged_trail import Original, Rewrite, Step, spoiled_base64, steps_of
from bench.attack.forgeries import Forgery, entry_changed, entry_of_kind, new_entry
from reviews.trail.chain.keys import key_id
from specs.trail.entry import Role

# ---- envelopes ---------------------------------------------------------------------------------------------------


def another_envelope(original: Original, chance: random.Random) -> Forgery:
    """An envelope in another form, or with other signatures."""
    number = entry_of_kind(original, chance)

    def signatures(change: Callable[[list[Any]], Any]) -> Rewrite:
        def rewritten(data: bytes) -> bytes:
            value = json.loads(data)
            value["signatures"] = change(value["signatures"])
            return json.dumps(value, separators=(",", ":")).encode()

        return rewritten

    def spoil_policy(value: Any, **changed: Any) -> Any:
        return value | changed

    stranger = base64.b64encode(chance.randbytes(64)).decode()
    changes: dict[str, Rewrite] = {
        "no signature": signatures(lambda all: []),
        "null as signatures": signatures(lambda all: None),
        "another spelling of base64": signatures(lambda all: [spoil_policy(all[0], sig=spoiled_base64(all[0]["sig"]))]),
        "a line end in base64": signatures(lambda all: [spoil_policy(all[0], sig=all[0]["sig"] + "\n")]),
        "base64 without padding": signatures(lambda all: [spoil_policy(all[0], sig=all[0]["sig"].rstrip("="))]),
        "a signature cut": signatures(lambda all: [spoil_policy(all[0], sig=all[0]["sig"][:44])]),
        "a wrong signature": signatures(lambda all: [spoil_policy(all[0], sig=stranger)]),
        "a wrong signature too": signatures(lambda all: [*all, spoil_policy(all[0], sig=stranger)]),
        "a signature of a stranger too": signatures(lambda all: [*all, spoil_policy(all[0], keyid="0" * 64)]),
        "a key id in capitals": signatures(lambda all: [spoil_policy(all[0], keyid=all[0]["keyid"].upper())]),
        "a member of a signature more": signatures(lambda all: [spoil_policy(all[0], cert="x")]),
        "a key id twice": lambda data: data.replace(b'{"keyid":', b'{"keyid":"x","keyid":', 1),
        "a payload twice": lambda data: b'{"payload":"e30=",' + data[1:],
        "a payload in capitals too": lambda data: data[:-1] + b',"Payload":"e30="}',
        "another payload type": lambda data: data.replace(b"in-toto+json", b"in-toto+JSON", 1),
        "a space": lambda data: data.replace(b",", b", ", 1),
        "a line end": lambda data: data + b"\n",
        "an escaped slash": lambda data: data.replace(b"application/", b"application\\/", 1),
        "another payload": lambda data: re.sub(rb'"payload":"....', b'"payload":"AAAA', data, count=1),
        "no payload": lambda data: re.sub(rb'"payload":"[^"]*"', b'"payload":""', data, count=1),
        "nothing": lambda data: b"",
        "no JSON": lambda data: b"entry",
    }
    name = chance.choice(sorted(changes))
    return entry_changed(original, number, f"envelope with {name}", envelope=changes[name])


def signed_twice(original: Original, chance: random.Random) -> Forgery:
    """The same signature twice says nothing more, and nothing less."""
    number = entry_of_kind(original, chance)

    def twice(data: bytes) -> bytes:
        value = json.loads(data)
        value["signatures"] *= 2
        return json.dumps(value, separators=(",", ":")).encode()

    return entry_changed(original, number, "the same signature twice", envelope=twice, harmful=False)


# ---- policies ----------------------------------------------------------------------------------------------------


def another_first_policy(original: Original, chance: random.Random) -> Forgery:
    """The first policy in another form. One that holds is a trail of someone else, which only a kept policy shows."""
    policy: Any = copy.deepcopy(original.entries[0].policy)
    name, harmful = chance.choice(sorted(_POLICIES.items())), True
    harmful = name[1](policy, chance)
    entry = original.entries[0].model_copy(update={"policy": policy})
    steps = [Step(entry), *steps_of(original)[1:]]
    return Forgery(f"first policy: {name[0]}", steps, policy, harmful)


def _set(**changed: Any) -> Callable[[Any, random.Random], bool]:
    def change(policy: Any, chance: random.Random) -> bool:
        policy |= changed
        return True

    return change


def _set_key(**changed: Any) -> Callable[[Any, random.Random], bool]:
    def change(policy: Any, chance: random.Random) -> bool:
        policy["keys"][chance.randrange(len(policy["keys"]))] |= changed
        return True

    return change


def _listed_twice(policy: Any, chance: random.Random) -> bool:
    policy["keys"].append(policy["keys"][0] | {"role": "reviewer"})
    return True


def _drop_policy_field(name: str) -> Callable[[Any, random.Random], bool]:
    def change(policy: Any, chance: random.Random) -> bool:
        del policy[name]
        return True

    return change


def _in_another_order(policy: Any, chance: random.Random) -> bool:
    policy["keys"].reverse()
    return False


def _empty_role(policy: Any, chance: random.Random) -> bool:
    policy["roles"]["spend"] = []
    return False


def _more_keys(policy: Any, chance: random.Random) -> bool:
    public = original_public(chance)
    policy["keys"].append(
        policy["keys"][0] | {"id": key_id(public), "public": public.hex(), "role": "human", "since": 5}
    )
    return False


def original_public(chance: random.Random) -> bytes:
    """Return the public half of some key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(chance.randbytes(32)).public_key().public_bytes_raw()


_POLICIES: dict[str, Callable[[Any, random.Random], bool]] = {
    "an unknown member": _set(z=1),
    "another form": _set(schema_version=2),
    "true as its form": _set(schema_version=True),
    "no witnesses": _drop_policy_field("witnesses"),
    "no keys": _drop_policy_field("keys"),
    "no roles": _drop_policy_field("roles"),
    "keys that are none": _set(keys={}),
    "a witness that is none": _set(witnesses=["ada"]),
    "a witness that is a number": _set(witnesses=[5]),
    "another origin": _set(origin="peergate/small two"),
    "an empty origin": _set(origin=""),
    "an unknown role": _set(roles={"*": ["log", "admin"]}),
    "roles that are text": _set(roles={"*": "log"}),
    "no one signs": _set(roles={"*": ["human"]}),
    "a key of no role": _set_key(role="admin"),
    "a key id that is another's": _set_key(id="0" * 64),
    "a public key in capitals": _set_key(public="A" * 64),
    "a short public key": _set_key(public="ab"),
    "since as text": _set_key(since="0"),
    "since as true": _set_key(since=False),
    "revoked as a number": _set_key(revoked=0),
    "until as text": _set_key(until=""),
    "an unknown member of a key": _set_key(z=1),
    "a key twice": _listed_twice,
    "keys in another order": _in_another_order,
    "an empty list of signers": _empty_role,
    "one more key": _more_keys,
}


def changed_keys(original: Original, chance: random.Random) -> Forgery:
    """An entry that changes keys, signed by the person's key: lawful, or with past, roles or log changed."""
    number = chance.randrange(2, len(original.entries) - 1)
    before: Any = original.entries[0].policy
    after: Any = copy.deepcopy(before)
    public = original_public(chance)
    added = {"id": key_id(public), "public": public.hex(), "role": "human", "revoked": False, "since": number + 1}
    after["keys"].append(added | {"until": None})
    name, change = chance.choice(sorted(_CHANGES.items()))
    change(after, number)
    entry = new_entry(original, number, "keys/x", "spend" if name == "of another kind" else "keys")
    entry = entry.model_copy(update={"policy": None if name == "no policy" else after})
    role: Role = "log" if name in ("signed by the log", "of another kind") else "human"
    steps = steps_of(original)
    steps = [*steps[:number], Step(entry, role=role), *steps[number:]]
    visible = before if name == "no policy" else after
    return Forgery(f"entry {number} changes keys: {name}", steps, visible, name != "lawful")


def _nothing(policy: Any, number: int) -> None:
    """Leave the policy as it is: one key more."""


def _of_key(place: int, name: str, value: Callable[[int], Any]) -> Callable[[Any, int], None]:
    def change(policy: Any, number: int) -> None:
        policy["keys"][place][name] = value(number)

    return change


def _of_policy(**changed: Any) -> Callable[[Any, int], None]:
    def change(policy: Any, number: int) -> None:
        policy |= changed

    return change


def _known_key(policy: Any, number: int) -> None:
    policy["keys"][-1] |= {name: policy["keys"][1][name] for name in ("id", "public")}


_CHANGES: dict[str, Callable[[Any, int], None]] = {
    "lawful": _nothing,
    "no policy": _nothing,
    "of another kind": _nothing,
    "signed by the log": _nothing,
    "other roles": lambda policy, number: policy["roles"].update({"verdict": ["log", "reviewer"]}),
    "another role of a key": _of_key(1, "role", lambda number: "reviewer"),
    "a key is gone": lambda policy, number: policy["keys"].pop(number % 4),
    "another past": _of_key(1, "since", lambda number: 1),
    "begins at once": _of_key(-1, "since", lambda number: number),
    "always was": _of_key(-1, "since", lambda number: 0),
    "ended already": _of_key(-1, "until", lambda number: number + 5),
    "ends before": _of_key(1, "until", lambda number: number),
    "revoked before it began": _of_key(-1, "revoked", lambda number: True),
    "another log": _of_policy(origin="peergate/other"),
    "a witness": _of_policy(witnesses=["x"]),
    "a key twice": _known_key,
}
"""Changes of a policy to which one key was added; the second of its keys is the builder's."""
