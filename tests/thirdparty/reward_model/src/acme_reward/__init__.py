"""A stage kind for Peergate: a reward model, trained on pairs of a better and a worse answer."""
