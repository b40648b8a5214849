"""Imports what is not there."""

import no_such_module_here  # type: ignore[import-not-found]  # noqa: F401
