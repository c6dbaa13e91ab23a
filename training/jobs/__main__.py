"""The process of every stage: ``python -P -m training.jobs JOB_FOLDER``."""

from training.jobs.job import main

if __name__ == "__main__":
    main()
