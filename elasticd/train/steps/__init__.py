"""What runs a step: samples, grains, sums, the update."""
