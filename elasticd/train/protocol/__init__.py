"""The trainer's side of what it and its daemon say to each other, as pure decisions."""
