"""The held-out items of a session with the answers of both arms, for the viewer and the page of an export."""
