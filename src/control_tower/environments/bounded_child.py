"""Start a script with bounds on its memory, processor time and files, before it sees untrusted data.

Run by path: `bounded_child.py LIMITS SCRIPT ARGUMENT...`, where LIMITS is a JSON object.
"""

import json
import runpy
import sys
from typing import Any


def limit_self(limits: dict[str, Any]) -> None:
    """Bound this process, where the system can."""
    try:
        import resource
    except ImportError:
        return
    for what, value in (
        (resource.RLIMIT_AS, int(limits["memory_bytes"])),
        (resource.RLIMIT_CPU, int(limits["seconds"])),
        (resource.RLIMIT_FSIZE, int(limits["file_bytes"])),
    ):
        try:
            resource.setrlimit(what, (value, value))
        except (ValueError, OSError):  # macOS has no bound on memory
            continue


if __name__ == "__main__":
    limit_self(json.loads(sys.argv[1]))
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
