"""What talks to the daemon."""
