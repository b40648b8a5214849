"""What every node keeps of jobs and of nodes."""
