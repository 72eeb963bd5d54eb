"""SQLite files that several processes open at once."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path


def open_shared(path: Path, wait: float) -> sqlite3.Connection:
    """Opens a file in WAL mode, in which readers and a writer do not wait for each other.

    Args:
        path: The file; it is made when missing.
        wait: Seconds for which this and every later call wait for others.

    Returns:
        A connection for any thread, one at a time, that begins no transaction by itself.
    """
    connection = sqlite3.connect(path, timeout=wait, isolation_level=None, check_same_thread=False)
    until = time.monotonic() + wait
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return connection
        except sqlite3.OperationalError as error:
            # Two that make the file at once do not wait for each other here.
            if "locked" not in str(error) or time.monotonic() > until:
                connection.close()
                raise
            time.sleep(0.02)
