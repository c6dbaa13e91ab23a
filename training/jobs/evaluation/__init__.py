"""What the measuring stages score with: prompts by condition, likelihoods, labelled pairs. Judging is not here."""
