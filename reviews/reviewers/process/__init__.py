"""The reviewer as a process of its own: it alone holds the reviewer's signing key and the keys of reviewers' vendors.

``python -P -m reviews.reviewers.process`` reads one message a line and answers each with one line (``messages.py``).
It signs the entry of a verdict only if it came to that verdict itself (``signing_rules.py``). The session's side is
``client.py``.

What this gives: no other part of Peergate can have a verdict signed that no reviewer came to. What it does not give: a
wall against somebody who works as the same user of the machine and reads the file of the key himself.
"""
