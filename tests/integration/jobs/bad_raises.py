"""Raises before it calls Run."""

raise ValueError("no such luck")
