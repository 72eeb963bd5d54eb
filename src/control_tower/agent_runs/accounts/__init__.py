"""Who may use a viewer: users, their tokens and sessions, and logins from other devices.

All state is in the store, so several servers see the same: what is revoked by one is refused by all.
"""
