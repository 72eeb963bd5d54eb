"""The store of blobs of an address."""

from __future__ import annotations

from control_tower.storage.blobs import Blobs


async def open_blobs(address: str) -> Blobs:
    """Opens a store of blobs; it is closed by its `close`.

    Args:
        address: A folder, or `s3://<bucket>/<prefix>`.

    Raises:
        ValidationError: The address names no bucket.
        StateError: There are no AWS credentials.
    """
    if address.startswith("s3://"):
        from control_tower.storage.s3 import S3Blobs

        return S3Blobs(address)
    from control_tower.storage.directory import DirectoryBlobs

    return DirectoryBlobs(address)
