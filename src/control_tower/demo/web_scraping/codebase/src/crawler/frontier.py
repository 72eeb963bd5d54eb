"""The queue of pages still to visit: first in, first out, each URL once."""

from collections import deque


class Frontier:
    """URLs in the order they were found."""

    def __init__(self):
        self._queue = deque()
        self._seen = set()

    def add(self, url):
        """Queue a URL unless it was queued before."""
        if url not in self._seen:
            self._seen.add(url)
            self._queue.append(url)

    def next(self):
        """The next URL to visit, None when there is none left."""
        return self._queue.popleft() if self._queue else None

    def __len__(self):
        return len(self._queue)
