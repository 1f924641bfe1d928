"""What a check has looked at and what it has found (`service/doctor.py`)."""

from collections import Counter
from collections.abc import Callable

from msgspec import Struct

from muniment.model.audit import Verified

FINDINGS_MAX = 50
"""Of one kind in one place; more of them are counted and not listed."""

PROGRESS_ROWS = 500

Progress = Callable[[str, int], None]
"""Is told what is being checked and how many rows have been, every so often."""


class Finding(Struct, frozen=True):
    """Something that is not as it must be: what kind of thing, where it is, what is wrong.

    `place` is the path, the number, the hash or the id of the one that is damaged.
    """

    kind: str
    message: str
    workspace: str | None = None
    store: str | None = None
    place: str | None = None


class Report(Struct, frozen=True):
    """The outcome of a check: the schema, how much of each kind was checked, what was found.

    A finding is damage. A warning is worth a look, and nothing is lost or wrong.
    """

    schema: int
    checked: dict[str, int]
    findings: list[Finding]
    warnings: list[Finding]
    streams: list[Verified] = []
    """The event streams, where they alone were checked."""


class Notes:
    """What has been found so far. Bounded: of many like findings the first ones are kept."""

    def __init__(self, progress: Progress | None = None) -> None:
        self.checked: Counter[str] = Counter()
        self.findings: list[Finding] = []
        self.warnings: list[Finding] = []
        self.streams: list[Verified] = []
        self._like: Counter[tuple[str, str | None, str | None]] = Counter()
        self._progress = progress
        self._rows = 0
        self._about = ""

    def begin(self, about: str) -> None:
        """Says what is checked next."""
        self._about = about
        if self._progress is not None:
            self._progress(about, self._rows)

    def count(self, kind: str, rows: int = 1) -> None:
        """So many more of a kind have been looked at."""
        self.checked[kind] += rows
        before, self._rows = self._rows, self._rows + rows
        crossed = before // PROGRESS_ROWS != self._rows // PROGRESS_ROWS
        if self._progress is not None and crossed:
            self._progress(self._about, self._rows)

    def find(self, finding: Finding) -> None:
        """Notes damage."""
        like = (finding.kind, finding.workspace, finding.store)
        self._like[like] += 1
        if self._like[like] <= FINDINGS_MAX:
            self.findings.append(finding)

    def warn(self, warning: Finding) -> None:
        """Notes what is worth a look."""
        self.warnings.append(warning)

    def report(self, schema: int) -> Report:
        """The whole."""
        findings = list(self.findings)
        for (kind, workspace, store), count in self._like.items():
            if count > FINDINGS_MAX:
                more = f"{count - FINDINGS_MAX} more findings of this kind are not listed"
                findings.append(Finding(kind, more, workspace, store))
        return Report(
            schema, dict(sorted(self.checked.items())), findings, self.warnings, self.streams
        )
