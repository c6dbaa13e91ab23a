"""The job that packages a checkpoint and loads it again."""
