"""The stages, one module each in the folder of its family, which the wrapper runs as a process."""
