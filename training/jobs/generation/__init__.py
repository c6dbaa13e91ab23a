"""What the stages that write text share: prompts, stop strings, cleaning, parsing, duplicates, sentinels."""
