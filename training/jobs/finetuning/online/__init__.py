"""Training on what the model itself writes: rollouts, their rewards, and the channels that learn from them."""
