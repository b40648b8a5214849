"""How shards on disks become a consistent checkpoint: the nouns of leading/checkpointing.py."""
