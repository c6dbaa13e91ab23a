"""Starts, resumes, steers and replicates sessions."""
