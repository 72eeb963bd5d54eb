CREATE TABLE suppliers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, iban TEXT NOT NULL);
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, email TEXT NOT NULL);
CREATE TABLE payouts (
    id INTEGER PRIMARY KEY,
    supplier INTEGER NOT NULL REFERENCES suppliers,
    iban TEXT NOT NULL,
    cents INTEGER NOT NULL CHECK (cents > 0)
);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY,
    customer INTEGER NOT NULL REFERENCES customers,
    supplier INTEGER NOT NULL REFERENCES suppliers,
    item TEXT NOT NULL,
    cents INTEGER NOT NULL CHECK (cents > 0),
    status TEXT NOT NULL CHECK (status IN ('open', 'shipped')),
    payout INTEGER REFERENCES payouts
);
CREATE TABLE refunds (
    id INTEGER PRIMARY KEY,
    order_id INTEGER NOT NULL REFERENCES orders,
    cents INTEGER NOT NULL CHECK (cents > 0)
);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY,
    supplier INTEGER NOT NULL REFERENCES suppliers,
    text TEXT NOT NULL
);
