"""What the command line and the jobs folder may ask of a daemon."""
