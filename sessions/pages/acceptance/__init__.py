"""What is left of a session's acceptance criteria, and what became of what an audit asked for."""
