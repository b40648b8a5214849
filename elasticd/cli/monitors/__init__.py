"""The live view of a cluster: what is known of it, the picture of that, keys, and the looking."""
