"""The database service: one SQL statement at a time, over a socket."""

import json
import os
import socket


class DatabaseError(Exception):
    """A statement was refused."""


class Database:
    """A connection to the database that DATABASE_NAME names, on the server that DATABASE_SERVER names."""

    def __init__(self, server=None, name=None, timeout=10):
        host, _, port = (server or os.environ["DATABASE_SERVER"]).rpartition(":")
        self.name = name or os.environ.get("DATABASE_NAME", "production")
        self._socket = socket.create_connection((host, int(port)), timeout=timeout)
        self._lines = self._socket.makefile("rb")

    def rows(self, sql, *args):
        """The rows that a statement gives, each a dictionary."""
        return self._run(sql, args)["rows"]

    def insert(self, table, **values):
        """Add a row; its id."""
        marks = ", ".join("?" * len(values))
        sql = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})"
        return self._run(sql, values.values())["id"]

    def run(self, sql, *args):
        """Carry out a statement that gives no rows."""
        self._run(sql, args)

    def _run(self, sql, args):
        request = {"database": self.name, "sql": sql, "args": list(args)}
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        answer = json.loads(self._lines.readline() or b'{"error": "the database hung up"}')
        if "error" in answer:
            raise DatabaseError(answer["error"])
        return answer
