"""Reviewers that ask a model of another vendor. The SDKs are imported only when such a reviewer is built."""
