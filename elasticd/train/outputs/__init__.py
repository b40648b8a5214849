"""Files that a script writes."""
