"""Talks to a daemon over its control socket."""
