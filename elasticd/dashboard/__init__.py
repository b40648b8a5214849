"""The web page of a node and its metrics: a process of its own, which its daemon starts."""
