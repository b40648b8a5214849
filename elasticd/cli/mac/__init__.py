"""``elasticctl doctor --mac``: what only a Mac can prove, tried out in one command."""
