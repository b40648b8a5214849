"""What a daemon is asked on its control socket, and its small answers (docs/protocols.md §3).

A client may be older or newer than the daemon, so the names on the wire stay as they are. What
describes the cluster, its events and its checkpoints is for people and scripts: those answers are
plain maps that shell/control makes, and no words.

A command imports what it asks, and no more: to make a class takes time, of each command anew.
"""
