"""job.toml and elasticd.toml, and how they are read."""
