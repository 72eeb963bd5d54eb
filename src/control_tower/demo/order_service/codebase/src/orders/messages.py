"""What suppliers are told. They read about their orders, never about our customers."""


def about_payout(name, total, orders, columns):
    """The message that goes with a payout: a line an order, with the given columns of it."""
    lines = [f"Dear {name}, we paid {money(total)} for:"]
    lines += ["  " + "  ".join(shown(column, order[column]) for column in columns) for order in orders]
    return "\n".join(lines)


def shown(column, value):
    """A value as it is written."""
    return money(value) if column == "cents" else str(value)


def money(cents):
    """An amount in euros."""
    return f"{cents // 100}.{cents % 100:02d} EUR"
