"""A local page of sessions for people: read-only, live, rendered here from the models that the report is made from."""
