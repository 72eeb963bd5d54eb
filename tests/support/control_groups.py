"""The control groups of this machine, while others come and go."""

from __future__ import annotations

import os
from pathlib import Path


def control_groups(prefix: str) -> list[Path]:
    """Those whose names begin so."""
    walked = os.walk("/sys/fs/cgroup")
    return [Path(parent, name) for parent, names, _ in walked for name in names if name.startswith(prefix)]
