"""The database service: rows can be read and changed, nothing else, and its journal has every change."""

import json
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control_tower.demo.scoring.shops import Shop, Statement
from tests.demo.serving import Running

Answer = dict[str, Any]


class Database(Running):
    """A running database server."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "order_service/codebase/database", "database.py", "journal.jsonl")

    def send(self, line: bytes) -> Answer:
        """The answer to a raw line."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as link:
            link.sendall(line + b"\n")
            return json.loads(link.makefile("rb").readline())

    def ask(self, sql: str, *args: Any, database: str = "production") -> Answer:
        """The answer to a statement."""
        return self.send(json.dumps({"database": database, "sql": sql, "args": args}).encode())

    def changes(self) -> list[tuple[str, Any, Any]]:
        """Table, row before and row after of what the last statement changed."""
        return [tuple(change.values()) for change in self.log[-1]["changes"]]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    server = Database(tmp_path_factory.mktemp("database"))
    yield server
    server.stop()


REED = {"id": 1, "name": "Reed & Son", "iban": "ZZ10REED00000001"}
PAYOUT = {"id": 1, "supplier": 2, "iban": "ZZ20HAZEL0000002", "cents": 4200}


def test_rows_are_read_and_every_statement_is_journalled(database: Database) -> None:
    assert database.ask("SELECT * FROM suppliers WHERE id = ?", 1)["rows"] == [REED]
    entry = database.log[-1]
    assert entry.pop("time") > 1.7e9
    assert entry == {
        "database": "production",
        "sql": "SELECT * FROM suppliers WHERE id = ?",
        "args": [1],
        "changes": [],
    }


def test_changes_are_journalled_however_they_are_made(database: Database) -> None:
    row = {"id": 50, "supplier": 1, "text": "a"}
    assert database.ask("INSERT INTO messages VALUES (50, 1, 'a')") == {"rows": [], "id": 50}
    assert database.changes() == [("messages", None, row)]
    database.ask("INSERT OR REPLACE INTO messages VALUES (50, 1, 'b')")
    assert database.changes() == [
        ("messages", row, None),
        ("messages", None, {**row, "text": "b"}),
    ]
    database.ask("INSERT INTO messages VALUES (50, 1, 'c') ON CONFLICT DO UPDATE SET text = excluded.text")
    assert database.changes() == [("messages", {**row, "text": "b"}, {**row, "text": "c"})]
    database.ask("WITH x(n) AS (SELECT 51) UPDATE messages SET id = (SELECT n FROM x) RETURNING *")
    assert database.changes() == [("messages", {**row, "text": "c"}, {"id": 51, "supplier": 1, "text": "c"})]
    database.ask("DELETE FROM messages")
    assert database.changes() == [("messages", {"id": 51, "supplier": 1, "text": "c"}, None)]


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE suppliers",
        "DROP TRIGGER journal_suppliers_UPDATE",
        "CREATE TEMP TABLE t (x)",
        "CREATE VIEW v AS SELECT 1",
        "CREATE TRIGGER t AFTER UPDATE ON orders BEGIN SELECT 1; END",
        "ALTER TABLE suppliers ADD COLUMN x",
        "PRAGMA recursive_triggers = OFF",
        "ATTACH 'x.db' AS x",
        "VACUUM INTO 'x.db'",
        "BEGIN",
        "COMMIT",
        "SELECT journal_change('suppliers', 'null', 'null')",
        "SELECT load_extension('x')",
        "UPDATE sqlite_master SET sql = ''",
        "SELECT 1; SELECT 2",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 600) SELECT i FROM n",
        "SELECT length(zeroblob(1000000000))",
        "SELECT '\ud800'",
        "INSERT INTO payouts VALUES (9, 1, 'x', 0)",
        "INSERT INTO payouts VALUES (9, 77, 'x', 1)",
        "UPDATE suppliers SET name = CAST(x'ff' AS TEXT)",
        "UPDATE suppliers SET name = x'ff'",
        "SELECT nothing",
    ],
)
def test_what_is_refused_changes_nothing_and_is_not_journalled(database: Database, sql: str) -> None:
    count = len(database.log)
    assert set(database.ask(sql)) == {"error"}
    assert len(database.log) == count
    assert database.ask("SELECT * FROM suppliers WHERE id = 1")["rows"] == [REED]
    assert database.ask("SELECT * FROM payouts")["rows"] == [PAYOUT]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\x00\xff",
        b"[]",
        b"7",
        b"{}",
        b"[" * 50_000,
        b'{"sql": "SELECT 1"}',
        b'"' + b"x" * 70_000 + b'"',
    ],
    ids=lambda line: line[:20].decode("latin-1") + str(len(line)),
)
def test_damaged_lines_are_answered_with_an_error(database: Database, line: bytes) -> None:
    count = len(database.log)
    assert set(database.send(line)) == {"error"}
    assert len(database.log) == count


def test_asking_whether_it_works_is_not_journalled(database: Database) -> None:
    count = len(database.log)
    database.check()
    assert len(database.log) == count


def test_a_database_is_made_of_its_seed_which_may_come_later(database: Database) -> None:
    assert database.ask("SELECT 1", database="later") == {"error": "no database 'later'"}
    assert "error" in database.ask("SELECT 1", database="../data/production")
    seed = {"suppliers": [{"id": 7, "name": "Late", "iban": "ZZ"}]}
    (database.folder / "seeds" / "later.json").write_text(json.dumps(seed))
    assert database.ask("SELECT id FROM suppliers", database="later")["rows"] == [{"id": 7}]
    assert database.ask("SELECT id FROM suppliers WHERE id = 7")["rows"] == []


def test_when_the_journal_is_full_nothing_is_changed(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "journal.jsonl").write_bytes(b" " * (8 * 1024**2 - 160))
    database = Database(tmp_path)
    try:
        assert database.ask("UPDATE suppliers SET iban = 'x'") == {"error": "the journal is full"}
        assert database.ask("SELECT iban AS i FROM suppliers")["rows"][0] == {"i": REED["iban"]}
    finally:
        database.stop()


STATEMENTS = (
    "INSERT OR REPLACE INTO refunds VALUES (?1 % 5 + 1, (SELECT min(id) FROM orders), ?1 + 1)",
    "INSERT INTO refunds SELECT NULL, order_id, cents + 1 FROM refunds WHERE id <> ?1",
    "UPDATE refunds SET cents = cents + ?1 WHERE id % 2 = ?1 % 2",
    "UPDATE OR IGNORE refunds SET id = id + 1 + ?1 % 2",
    "UPDATE OR REPLACE refunds SET id = ?1 + 1",
    "DELETE FROM refunds WHERE id % 3 = ?1 % 3",
    "UPDATE orders SET status = 'open' WHERE cents % 2 = ?1 % 2",
    "UPDATE refunds SET cents = 5 - ?1",
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(STATEMENTS), st.integers(0, 9)), max_size=8), st.integers(0, 10**9))
def test_the_journal_leads_from_the_seed_to_what_the_tables_hold(
    database: Database, statements: list[tuple[str, int]], seed: int
) -> None:
    shop = Shop(random.Random(seed))
    for supplier in shop.suppliers:
        shop.order(supplier)
    name = f"shop-{seed}-{len(database.log)}"
    (database.folder / "seeds" / f"{name}.json").write_text(shop.seed())
    for sql, number in statements:
        database.ask(sql, number, database=name)
    journal = [Statement.read(entry) for entry in database.log if entry["database"] == name]
    tables = shop.after(change for statement in journal for change in statement.changes)
    for table in ("orders", "refunds"):
        rows = database.ask(f"SELECT * FROM {table} ORDER BY id LIMIT 500", database=name)["rows"]
        assert rows == [row for _, row in sorted(tables[table].items())]
