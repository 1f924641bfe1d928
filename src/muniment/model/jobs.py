"""Jobs: work to do, written in the transaction that causes it (house section 8)."""

from msgspec import Struct

from muniment.model.ids import JobId

ERASE_STORE = "erase_store"


class Job(Struct, frozen=True):
    """A unit of work: its kind and the id it is about. Never holds content."""

    id: JobId
    kind: str
    subject: str
    created_at: int
