"""Engines next to the batched one of ``training/engines/engine.py``: the same prompts in, the same rows out."""
