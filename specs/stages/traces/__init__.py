"""The kind that learns from recorded agent sessions: what a model would have done in their states."""
