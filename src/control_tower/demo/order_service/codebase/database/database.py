"""The databases of one sample behind a socket: one SQL statement a line, journalled with what it changed.

A line is a JSON object with `database`, `sql` and `args`; the answer is a line with `rows` and the `id` of
the row that was inserted last, or with `error`. A database is made of the file in `seeds/` that has its
name. A statement that cannot be journalled is not carried out. Only rows can be read and changed.
"""

import json
import re
import socketserver
import sqlite3
import threading
import time
from pathlib import Path

from serving import Log, Server, answer_check, listen_address

JOURNAL = Path("log/journal.jsonl")
SEEDS = Path("seeds")
DATA = Path("data")
SCHEMA = Path("schema.sql")
NAME = re.compile(r"[a-z0-9-]{1,64}")
MAX_LINE_BYTES = 64 * 1024
MAX_VALUE_BYTES = 64 * 1024
MAX_ROWS = 500
MAX_CHANGES = 2_000
MAX_ANSWER_BYTES = 256 * 1024
MAX_PAGES = 256
MAX_HEAP_BYTES = 64 * 1024**2
STATEMENT_SECONDS = 2
IDLE_SECONDS = 30

JOURNAL_FUNCTION = "journal_change"
TRIGGER = "journal_{}_{}"
ALLOWED = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_INSERT,
    sqlite3.SQLITE_UPDATE,
    sqlite3.SQLITE_DELETE,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}


class Refused(Exception):
    """Why a statement is not carried out."""


class Databases:
    """The databases of the folder `data`, one statement at a time."""

    def __init__(self, journal):
        DATA.mkdir(exist_ok=True)
        self._journal = journal
        self._lock = threading.Lock()

    def run(self, request):
        """Carry out a request; what is answered."""
        try:
            name, sql, args = (request.get(key) for key in ("database", "sql", "args"))
            if not (isinstance(name, str) and isinstance(sql, str) and isinstance(args, list)):
                raise Refused("a request has a database, sql and args")
            with self._lock:
                return self._run(name, sql, args)
        except (Refused, sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError) as error:
            return {"error": str(error) or type(error).__name__}

    def _run(self, name, sql, args):
        path = self._file(name)
        changes = []
        link = sqlite3.connect(path, isolation_level=None)
        try:
            guard(link, changes)
            deadline = time.monotonic() + STATEMENT_SECONDS
            link.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
            cursor = link.execute(sql, args)
            names = [column[0] for column in cursor.description or ()]
            rows = [dict(zip(names, row)) for row in cursor.fetchmany(MAX_ROWS + 1)]
            answer = {"rows": rows, "id": cursor.lastrowid}
            if len(rows) > MAX_ROWS or len(json.dumps(answer, default=bytes.hex)) > MAX_ANSWER_BYTES:
                raise Refused("the result is too large")
            cursor.close()
            entry = {"time": time.time(), "database": name, "sql": sql, "args": args, "changes": changes}
            if not self._journal.append(entry):
                raise Refused("the journal is full")
            link.set_authorizer(None)
            link.execute("COMMIT")
            return answer
        finally:
            link.close()

    def _file(self, name):
        """The file of a database, made when it is first asked for."""
        if not NAME.fullmatch(name):
            raise Refused("bad name of a database")
        path = DATA / f"{name}.db"
        if not path.exists():
            seed = SEEDS / f"{name}.json"
            if not seed.is_file():
                raise Refused(f"no database '{name}'")
            fill(path, json.loads(seed.read_text(encoding="utf-8")))
        return path


def fill(path, tables):
    """Make a database of table -> rows."""
    draft = path.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    link = sqlite3.connect(draft)
    link.executescript(SCHEMA.read_text(encoding="utf-8"))
    for table, rows in tables.items():
        for row in rows:
            marks = ", ".join("?" * len(row))
            link.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))
    link.commit()
    link.close()
    draft.rename(path)


def guard(link, changes):
    """Begin a transaction in which rows can be read and changed and nothing else; note the changes."""
    link.executescript(
        f"PRAGMA foreign_keys = ON; PRAGMA recursive_triggers = ON; PRAGMA max_page_count = {MAX_PAGES};"
        f"PRAGMA hard_heap_limit = {MAX_HEAP_BYTES}; PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF;"
    )
    link.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)

    def note(table, before, after):
        if len(changes) == MAX_CHANGES:
            raise Refused("too many changes")
        changes.append({"table": table, "before": json.loads(before), "after": json.loads(after)})

    link.create_function(JOURNAL_FUNCTION, 3, note)
    tables = [row[0] for row in link.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    triggers = set()
    for table in tables:
        columns = [row[1] for row in link.execute(f"PRAGMA table_info({table})")]
        for verb, before, after in (
            ("INSERT", None, "new"),
            ("UPDATE", "old", "new"),
            ("DELETE", "old", None),
        ):
            name = TRIGGER.format(table, verb)
            link.execute(
                f"CREATE TEMP TRIGGER {name} AFTER {verb} ON main.{table} BEGIN "
                f"SELECT {JOURNAL_FUNCTION}('{table}', {row_as_json(before, columns)}, {row_as_json(after, columns)});"
                " END"
            )
            triggers.add(name)

    def allow(action, first, second, schema, source):
        if action not in ALLOWED:
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_FUNCTION and second == JOURNAL_FUNCTION and source not in triggers:
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    link.execute("BEGIN IMMEDIATE")
    link.set_authorizer(allow)


def row_as_json(row, columns):
    """SQL that makes a JSON object of a row; null without one."""
    if row is None:
        return "'null'"
    return "json_object(" + ", ".join(f"'{name}', {row}.{name}" for name in columns) + ")"


class Handler(socketserver.StreamRequestHandler):
    """Answers the lines of a connection, one after the other."""

    timeout = IDLE_SECONDS

    def handle(self):
        while line := self.rfile.readline(MAX_LINE_BYTES + 1):
            answer = self.answer(line)
            self.wfile.write(json.dumps(answer, default=bytes.hex).encode() + b"\n")

    def answer(self, line):
        if len(line) > MAX_LINE_BYTES:
            return {"error": "the line is too long"}
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            request = None
        if not isinstance(request, dict):
            return {"error": "a line is a JSON object"}
        return {"rows": []} if "check" in request else self.server.databases.run(request)


class Database(Server):
    """Databases behind a socket."""

    def __init__(self, address, log):
        super().__init__(address, Handler, log)
        self.databases = Databases(log)


def main():
    answer_check(b'{"check": true}\n', b'"rows"')
    Database(listen_address(), Log(JOURNAL)).serve()


if __name__ == "__main__":
    main()
