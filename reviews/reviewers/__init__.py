"""Who reviews: the checklist, a model, a person, each behind a process of its own."""
