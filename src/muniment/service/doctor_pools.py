"""Whether the blobs and nodes of a pool are what their names say, and whether a tree has them."""

from hashlib import sha256

from muniment.model.ids import PoolId, StoreId
from muniment.model.nodechecks import Below, check_row, read_sound, summary
from muniment.model.nodes import EMPTY_TREE, Row, read_node
from muniment.service.doctor_reading import Reading, reason, shown
from muniment.storage.base import LIST_MAX

KEPT_MAX = 100_000
"""How many sizes of blobs, and how many summaries of nodes, are kept at a time."""

REACHED_BITS = 1 << 27
_SLICE_BYTES = 4
_SLICES = 4


class Reached:
    """The hashes that some tree names, in a fixed space: none is forgotten, and of a million one
    in a million that no tree names is taken for one that a tree names."""

    def __init__(self) -> None:
        self._bits = bytearray()

    def add(self, digest: bytes) -> None:
        """Remembers the hash."""
        if not self._bits:
            self._bits = bytearray(REACHED_BITS // 8)
        for bit in _bits(digest):
            self._bits[bit >> 3] |= 1 << (bit & 7)

    def __contains__(self, digest: bytes) -> bool:
        return bool(self._bits) and all(
            self._bits[bit >> 3] >> (bit & 7) & 1 for bit in _bits(digest)
        )


def _bits(digest: bytes) -> list[int]:
    starts = range(0, _SLICES * _SLICE_BYTES, _SLICE_BYTES)
    return [int.from_bytes(digest[at : at + _SLICE_BYTES]) % REACHED_BITS for at in starts]


class Pool:
    """A pool's bytes, in one snapshot. `opens` is False where sealed bodies cannot be opened."""

    def __init__(self, r: Reading, pool: PoolId, *, opens: bool) -> None:
        self.r = r
        self.id = pool
        self.reached = Reached()
        self._opens = opens
        self._sizes: dict[bytes, int | None] = {}
        self._below: dict[bytes, Below] = {}

    def of(self, store: StoreId | None) -> "Pool":
        """The pool, with what is found in it noted as the store's, where it is one store's."""
        if store is not None:
            self.r = self.r.of(store)
        return self

    async def load(self, digest: bytes) -> bytes:
        """A node of a tree, for the pure functions; it counts as reached."""
        self.reached.add(digest)
        return await self.r.tx.get_node(self.r.workspace, self.id, digest)

    async def rows(self, root: bytes) -> tuple[int, list[Row]]:
        """The level and the rows of a tree's root."""
        return (0, []) if root == EMPTY_TREE else read_node(await self.load(root))

    async def check(self) -> None:
        """Every blob and every node is what its name says, and a node's rows what is below it."""
        async for key, blob in self.r.rows("blobs", self.id):
            if self._opens:
                await self._check_blob(blob, shown("blobs", key))
        async for key, body in self.r.rows("nodes", self.id):
            await self._check_node(key[0], body)
        await self._check_keys()

    async def _check_blob(self, blob: bytes, place: str) -> None:
        size: int | None = None
        try:
            content = await self.r.tx.get_blob(self.r.workspace, self.id, blob)
        except Exception as error:
            self.r.find("blobs", reason(error), place)
        else:
            if content is None:
                self.r.find("blobs", "the key that it is sealed with is gone", place)
            else:
                size = len(content)
        self._keep_size(blob, size)

    def _keep_size(self, blob: bytes, size: int | None) -> None:
        if len(self._sizes) >= KEPT_MAX:
            self._sizes.clear()
        self._sizes[blob] = size

    async def check_size(self, blob: bytes, size: int | None) -> str | None:
        """What is wrong with a blob that a tree names with this size; it counts as reached.

        A damaged one is a finding of its own already.
        """
        self.reached.add(blob)
        if blob not in self._sizes:
            if await self.r.row("blobs", self.id, key=blob) is None:
                return f"its content, blob {blob.hex()}, is missing"
            if not self._opens:
                return None
            try:
                content = await self.r.tx.get_blob(self.r.workspace, self.id, blob)
            except Exception:
                content = None
            self._keep_size(blob, None if content is None else len(content))
        found = self._sizes[blob]
        if found is None or found == size:
            return None
        return f"its content, blob {blob.hex()}, has {found} bytes, not {size}"

    async def _check_node(self, digest: bytes, body: bytes) -> None:
        place = digest.hex()
        if sha256(body).digest() != digest:
            self.r.find("nodes", "its bytes have another hash", place)
            return
        node = read_sound(body)
        if isinstance(node, str):
            self.r.find("nodes", node, place)
            return
        level, rows = node
        before = ""
        for row in rows if level else []:
            try:
                damage = check_row(level, row, await self._summary(row[1]), before)
            except Exception:
                missing = await self.r.row("nodes", self.id, key=row[1]) is None
                # One that is there and damaged is a finding of its own.
                damage = f"node {row[1].hex()} below it is missing" if missing else None
            if damage is not None:
                self.r.find("nodes", damage, place)
                return
            before = row[0]

    async def _summary(self, digest: bytes) -> Below:
        kept = self._below.get(digest)
        if kept is None:
            level, rows = read_node(await self.r.tx.get_node(self.r.workspace, self.id, digest))
            first = rows[0][0] if level == 0 else (await self._summary(rows[0][1])).first
            if len(self._below) >= KEPT_MAX:
                self._below.clear()
            kept = self._below[digest] = summary(level, rows, first)
        return kept

    async def _check_keys(self) -> None:
        async for key, _ in self.r.rows("blob_keys", self.id):
            if await self.r.row("blobs", self.id, key=key[0]) is None:
                self.r.find("blob_keys", "there is no blob for it", shown("blob_keys", key))

    async def warn_of_orphans(self) -> None:
        """Counts the blobs and nodes that no tree of a revision names, as warnings."""
        tx, workspace = self.r.tx, self.r.workspace
        for kind, ask in (("blobs", tx.list_blobs), ("nodes", tx.list_nodes)):
            orphans, after = 0, None
            while page := await ask(workspace, self.id, after, LIST_MAX):
                orphans += sum(digest not in self.reached for digest in page)
                after = page[-1]
            if orphans:
                self.r.warn(kind, f"no revision needs {orphans} of pool {self.id}")
