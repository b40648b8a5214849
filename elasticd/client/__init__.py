"""Asks daemons on this machine, for the command line and for whoever else shows a cluster.

Nothing here prints, or knows of commands.
"""
