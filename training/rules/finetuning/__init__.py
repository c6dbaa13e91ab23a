"""Rules of training: losses in closed form, the split of preferences."""
