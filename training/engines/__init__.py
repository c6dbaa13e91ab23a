"""Engines beside the batched one of ``training/text/engine.py``: the same prompts in, the same rows out."""
