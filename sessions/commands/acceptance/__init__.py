"""The commands on acceptance criteria."""
