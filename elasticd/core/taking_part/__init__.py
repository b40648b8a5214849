"""A node's own part in a job: its trainer, spare and reducer."""
