"""New experiments: what `peergate init` writes into a folder."""
