"""A/B critics by next-token log-probability, chains of critique and revision, and preferences."""
