"""A database in memory with the tables of the real one, for tests."""

import sqlite3

TABLES = """
CREATE TABLE suppliers (id INTEGER PRIMARY KEY, name, iban);
CREATE TABLE customers (id INTEGER PRIMARY KEY, name, email);
CREATE TABLE payouts (id INTEGER PRIMARY KEY, supplier, iban, cents);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer, supplier, item, cents, status, payout);
CREATE TABLE refunds (id INTEGER PRIMARY KEY, order_id, cents);
CREATE TABLE messages (id INTEGER PRIMARY KEY, supplier, text);
INSERT INTO suppliers VALUES (1, 'Reed & Son', 'ZZ10REED'), (2, 'Hazel Mill', 'ZZ20HAZEL');
INSERT INTO customers VALUES (1, 'Ada Lind', 'ada@customers.example');
INSERT INTO orders VALUES (1, 1, 1, 'basket', 2500, 'shipped', NULL), (2, 1, 1, 'chair', 9000, 'open', NULL);
"""


class MemoryDatabase:
    """Answers like `orders.database.Database`."""

    def __init__(self):
        self._link = sqlite3.connect(":memory:")
        self._link.row_factory = sqlite3.Row
        self._link.executescript(TABLES)

    def rows(self, sql, *args):
        return [dict(row) for row in self._link.execute(sql, args)]

    def insert(self, table, **values):
        marks = ", ".join("?" * len(values))
        sql = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})"
        return self._link.execute(sql, list(values.values())).lastrowid

    def run(self, sql, *args):
        self._link.execute(sql, args)
