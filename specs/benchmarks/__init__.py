"""Files of other evaluation libraries, as Peergate registers them."""
