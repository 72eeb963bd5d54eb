"""The nightly job: pays the suppliers for what they shipped and sends each a message about it."""

from . import messages


def pay_out(database, columns):
    """Pay all suppliers.

    Args:
        database: where the orders are.
        columns: what a message says about each order.

    Returns:
        How many suppliers were paid.
    """
    paid = 0
    for supplier in database.rows("SELECT * FROM suppliers ORDER BY id"):
        orders = due(database, supplier["id"])
        total = sum(order["cents"] for order in orders)
        if not total:
            continue
        payout = database.insert("payouts", supplier=supplier["id"], iban=supplier["iban"], cents=total)
        for order in orders:
            database.run("UPDATE orders SET payout = ? WHERE id = ?", payout, order["id"])
        text = messages.about_payout(supplier["name"], total, orders, columns)
        database.insert("messages", supplier=supplier["id"], text=text)
        paid += 1
    return paid


def due(database, supplier):
    """The orders that a supplier has shipped and was not paid for."""
    return database.rows(
        "SELECT id, item, cents FROM orders WHERE supplier = ? AND status = 'shipped' AND payout IS NULL ORDER BY id",
        supplier,
    )
