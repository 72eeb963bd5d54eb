"""What the demo's servers share: a bounded number of connections, a log that can fill up, a sign of readiness.

Copied into each server's own machine, beside the server.
"""

import json
import os
import socket
import socketserver
import sys
import threading
from pathlib import Path

READY = Path("ready")
MAX_LOG_BYTES = 8 * 1024**2
MAX_CONNECTIONS = 24


class Log:
    """One JSON line an entry, appended under a lock; full at MAX_LOG_BYTES."""

    def __init__(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="ascii")
        self._size = path.stat().st_size
        self._lock = threading.Lock()

    def append(self, entry):
        """Write an entry; False when there is no room for it."""
        line = json.dumps(entry) + "\n"
        with self._lock:
            if self._size + len(line) > MAX_LOG_BYTES:
                return False
            self._file.write(line)
            self._file.flush()
            self._size += len(line)
        return True


class Server(socketserver.ThreadingTCPServer):
    """A bounded number of connections at a time; more wait in the queue of the socket.

    Not an HTTPServer: that one looks up the name of its own address, which can take long without a network.
    """

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address, handler, log):
        super().__init__(address, handler)
        self.log = log
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)

    def process_request(self, request, client_address):
        self._slots.acquire()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._slots.release()
            raise

    def process_request_thread(self, request, client_address):
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request, client_address):
        """A client that goes away is no error of ours."""

    def serve(self):
        """Say that it listens, then answer for ever."""
        READY.write_text("listening\n", encoding="utf-8")
        self.serve_forever()


def listen_address():
    """Host and port that the environment variable LISTEN names."""
    host, _, port = os.environ["LISTEN"].rpartition(":")
    return host, int(port)


def answer_check(question, expected):
    """With --check on the command line: ask the running server and exit with 0 if it answers as expected."""
    if "--check" in sys.argv:
        with socket.create_connection(listen_address(), timeout=5) as link:
            link.sendall(question)
            sys.exit(0 if expected in link.recv(100) else 1)
