"""What a node keeps on its disk, and how it gets it from others."""
