"""What the leader of a view does for its jobs."""
