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


def free_port() -> int:
    """A port of loopback that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield S3Server(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(10)
