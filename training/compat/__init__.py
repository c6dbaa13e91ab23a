"""What Peergate uses of other libraries' private names: a module a library, each for one pinned minor version."""
