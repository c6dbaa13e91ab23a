"""What runs: one file a stage, each its own process; raw rows and a manifest come out.

May import: specs. torch, transformers and TRL only inside ``training/stages`` and the modules only they use.
No gate logic, no trail: a job cannot know or change what is decided about it.
"""
