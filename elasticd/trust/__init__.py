"""Who belongs to a cluster: its authority, the members' certificates, tokens to join with.

Pure but for dice: bytes in, bytes out. shell/storage/papers.py keeps them in a home.
"""
