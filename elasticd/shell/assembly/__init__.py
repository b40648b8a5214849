"""The daemon, put together from the other rooms."""
