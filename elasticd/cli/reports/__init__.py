"""The report of a job: facts from the answers of daemons, and the pages that are made of them."""
