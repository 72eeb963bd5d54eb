"""Safety, usefulness, audit budgets, intervals: plain numbers in, plain numbers out; no Inspect."""
