"""How the collective engine of a world's ranks comes up: one module for each backend."""
