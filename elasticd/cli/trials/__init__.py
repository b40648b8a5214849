"""Trials of a job with other settings: what they measured, which is better, how they are run."""
