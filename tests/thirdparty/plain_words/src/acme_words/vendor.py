"""The reviewer's vendor ``plain_words``, as specs and sessions see it: nothing that reviews is imported."""

from __future__ import annotations

from specs.session.reviewer_vendor import ReviewerVendor

VENDOR = ReviewerVendor(name="plain_words", review="acme_words.review:review")
