"""What must hold of a checkpoint's files before anybody uses them, read without torch and without running any of it."""
