"""What is wrong with nodes and links before a job runs: pure judging of what was seen."""
