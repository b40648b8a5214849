"""A deterministic simulator that drives the very control plane of production: one seed, one
history."""
