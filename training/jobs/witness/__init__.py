"""The witness: reads a job's answers and scores again with the granted weights."""
