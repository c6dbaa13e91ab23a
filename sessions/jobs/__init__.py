"""Jobs: the launcher that refuses without a grant, and the wrapper every stage process runs in."""
