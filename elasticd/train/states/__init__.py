"""What keeps a state: arrays by name, snapshots, updates, shards."""
