"""Every record and message: frozen data, and how it travels."""
