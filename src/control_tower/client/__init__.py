"""How `ct` and notebooks speak to a viewer."""

import sys

# Its own command line, which nobody here uses, takes most of the time that importing httpx does.
sys.modules.setdefault("httpx._main", None)  # pyright: ignore[reportArgumentType]
