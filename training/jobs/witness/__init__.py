"""The witness: reads a job's answers again with the granted weights."""
