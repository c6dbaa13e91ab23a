"""The ground: files, processes and what this user agreed to. It knows nothing of specs."""
