"""Judges stages that learn from recorded agent sessions."""
