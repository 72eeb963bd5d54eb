"""White, red, blue and the seat: one sample's play."""
