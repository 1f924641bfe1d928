"""A bounded cache of tree nodes. Nodes never change, so nothing in it can be stale."""

from collections import OrderedDict
from threading import Lock

NODE_CACHE_BYTES = 32 * 1024 * 1024


class NodeCache:
    """Least recently used nodes by (pool, hash); safe to share between threads."""

    def __init__(self, bytes_max: int = NODE_CACHE_BYTES) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._lock = Lock()
        self._nodes: OrderedDict[tuple[str, bytes], bytes] = OrderedDict()

    def get(self, pool: str, node: bytes) -> bytes | None:
        """The node's bytes, or None."""
        with self._lock:
            body = self._nodes.get((pool, node))
            if body is not None:
                self._nodes.move_to_end((pool, node))
            return body

    def drop(self, pool: str) -> None:
        """Forgets the nodes of a pool that is being erased."""
        with self._lock:
            for key in [key for key in self._nodes if key[0] == pool]:
                self._bytes -= len(self._nodes.pop(key))

    def put(self, pool: str, node: bytes, body: bytes) -> None:
        """Keeps the node, dropping the least recently used ones over the limit."""
        with self._lock:
            if (pool, node) in self._nodes:
                return
            self._nodes[pool, node] = body
            self._bytes += len(body)
            while self._bytes > self._bytes_max:
                _, dropped = self._nodes.popitem(last=False)
                self._bytes -= len(dropped)
