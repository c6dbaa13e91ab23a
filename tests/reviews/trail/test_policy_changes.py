"""Which policy may follow another: keys begin and end after the entry that says so, and nothing of the past changes."""

from __future__ import annotations

from typing import Any

import pytest

from reviews.trail.integrity import unlawful_change
from specs.trail.key_policy import Policy, PolicyKey

SEQ = 7
"""The number of the entry that changes the policy."""


def key(name: str, **fields: Any) -> PolicyKey:
    return PolicyKey.model_validate({"id": name * 64, "role": "builder", "public": name * 64} | fields)


RUNS, ENDED, HUMAN = key("a"), key("b", until=4), key("c", role="human")
BEFORE = Policy(origin="peergate/small", keys=(RUNS, ENDED, HUMAN), roles={"*": ("builder",), "keys": ("human",)})


def after(*keys: PolicyKey, **fields: Any) -> Policy:
    return BEFORE.model_copy(update={"keys": keys} | fields)


@pytest.mark.parametrize(
    "lawful",
    [
        after(RUNS, ENDED, HUMAN),
        after(key("a", until=SEQ + 1), ENDED, HUMAN),
        after(key("a", until=SEQ + 1, revoked=True), ENDED, HUMAN),
        after(key("a", until=SEQ + 1), ENDED, HUMAN, key("d", since=SEQ + 1)),
    ],
    ids=["the same", "a key ends", "a key is revoked", "a key is replaced"],
)
def test_a_key_may_end_and_another_begin_after_the_entry(lawful: Policy) -> None:
    assert unlawful_change(BEFORE, lawful, SEQ) == ""


@pytest.mark.parametrize(
    ("unlawful", "why"),
    [
        (after(RUNS, HUMAN), "keys are missing"),
        (after(key("a", until=SEQ), ENDED, HUMAN), "the past of key aaaa"),
        (after(key("a", until=SEQ + 2), ENDED, HUMAN), "the past of key aaaa"),
        (after(key("a", revoked=True), ENDED, HUMAN), "the past of key aaaa"),
        (after(key("a", role="human"), ENDED, HUMAN), "the past of key aaaa"),
        (after(key("a", until=SEQ + 1, since=3), ENDED, HUMAN), "the past of key aaaa"),
        (after(RUNS, key("b"), HUMAN), "the past of key bbbb"),
        (after(RUNS, key("b", until=5), HUMAN), "the past of key bbbb"),
        (after(RUNS, key("b", until=SEQ + 1), HUMAN), "the past of key bbbb"),
        (after(RUNS, key("b", until=4, revoked=True), HUMAN), "the past of key bbbb"),
        (after(ENDED, RUNS, HUMAN), "the past of key aaaa"),
        (after(RUNS, ENDED, HUMAN, key("d", since=SEQ)), "the new key dddd"),
        (after(RUNS, ENDED, HUMAN, key("d", since=SEQ + 2)), "the new key dddd"),
        (after(RUNS, ENDED, HUMAN, key("d", since=SEQ + 1, until=SEQ + 9)), "the new key dddd"),
        (after(RUNS, ENDED, HUMAN, key("d", since=SEQ + 1, revoked=True)), "the new key dddd"),
        (after(RUNS, ENDED, HUMAN, origin="peergate/other"), "only keys can change"),
        (after(RUNS, ENDED, HUMAN, roles={"*": ("builder",)}), "only keys can change"),
        (after(RUNS, ENDED, HUMAN, witnesses=("w+1+2",)), "only keys can change"),
    ],
)
def test_any_other_change_is_refused(unlawful: Policy, why: str) -> None:
    assert unlawful_change(BEFORE, unlawful, SEQ).startswith(why)


def test_the_first_policy_follows_no_other() -> None:
    assert unlawful_change(None, BEFORE, SEQ) == "it follows no other"
