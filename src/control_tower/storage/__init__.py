"""Blobs: whole files kept under a key, in a directory or in S3."""
