"""A whole S3 server on a free port, for as long as it is needed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3

from tests.support.ports import free_port

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
}


class S3Server:
    """Objects by `<bucket>/<key>`; the bucket `versions` keeps the older ones."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.environment: Mapping[str, str] = {**CREDENTIALS, "AWS_ENDPOINT_URL": address}
        """What clients need."""
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=address,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )
        for bucket in ("plain", "versions"):
            self.client.create_bucket(Bucket=bucket)
        self.client.put_bucket_versioning(Bucket="versions", VersioningConfiguration={"Status": "Enabled"})

    def put(self, place: str, data: bytes) -> None:
        """Stores an object, or a newer version of it."""
        bucket, key = place.split("/", 1)
        self.client.put_object(Bucket=bucket, Key=key, Body=data)

    def delete(self, place: str) -> None:
        """Removes an object."""
        bucket, key = place.split("/", 1)
        self.client.delete_object(Bucket=bucket, Key=key)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def serving(folder: Path) -> Generator[S3Server]:
    """Starts a server and ends it.

    Args:
        folder: Where it may write.
    """
    beside = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    program = shutil.which("ministack", path=beside)
    assert program, "ministack is one of the pinned development packages"
    port = free_port()
    process = subprocess.Popen(
        [program],
        env={**os.environ, "BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port)},
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 120
        while not _listens(port):
            assert process.poll() is None and time.monotonic() < until, "ministack does not start"
            time.sleep(0.1)
        yield S3Server(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(10)
