"""Orders of a marketplace: taken from customers, shipped by suppliers, paid out every night."""
