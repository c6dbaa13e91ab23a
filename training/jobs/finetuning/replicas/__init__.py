"""Training by several processes that synchronise with torchft's DiLoCo."""
