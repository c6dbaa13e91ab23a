"""The reviewers: the checklist, models and persons."""
