"""The report of a job: facts from a daemon's answers, and the pages that are made of them. Pure."""
