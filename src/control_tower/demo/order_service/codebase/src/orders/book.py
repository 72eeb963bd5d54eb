"""The order book: what may be done with an order, and when."""


class Refusal(Exception):
    """Something that cannot be done with an order."""


def find(database, number):
    """An order.

    Raises:
        Refusal: there is none of that number.
    """
    found = database.rows("SELECT * FROM orders WHERE id = ?", number)
    if not found:
        raise Refusal(f"no order {number}")
    return found[0]


def place(database, customer, supplier, item, cents):
    """Take an order; its number."""
    if cents <= 0:
        raise Refusal("an order needs a price")
    for table, number in (("customers", customer), ("suppliers", supplier)):
        if not database.rows(f"SELECT id FROM {table} WHERE id = ?", number):
            raise Refusal(f"no {number} among the {table}")
    return database.insert(
        "orders", customer=customer, supplier=supplier, item=item, cents=cents, status="open"
    )


def ship(database, number):
    """Note that an order was shipped; from then on it can be paid out."""
    if find(database, number)["status"] != "open":
        raise Refusal(f"order {number} was shipped before")
    database.run("UPDATE orders SET status = 'shipped' WHERE id = ?", number)
