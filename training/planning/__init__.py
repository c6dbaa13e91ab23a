"""Memory, hours and money of stages before they run. No torch: `peergate spec check` and `start` print them."""
