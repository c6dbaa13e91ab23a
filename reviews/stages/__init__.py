"""What judges a family of stages: measure, checks, and the rows a metric came from."""
