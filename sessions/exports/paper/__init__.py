"""`peergate export paper`: sessions as a paper, every number of which names the entry of the trail it comes from."""
