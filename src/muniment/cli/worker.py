"""`muniment worker`: a process that does jobs and nothing else."""

import asyncio
import contextlib
import signal
import sys
from types import FrameType

from muniment import __version__, main, worker
from muniment.cli.output import note
from muniment.cli.serve import leave, new_loop
from muniment.settings import Settings

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def work(settings: Settings, *, quiet: bool) -> None:
    """Does jobs until SIGTERM or SIGINT, then gives back the one that it has and returns.

    A second signal ends the process at once, as a crash does. Failure where the database cannot be
    opened.
    """
    main.configure_logging(settings)
    for number in SIGNALS:
        signal.signal(number, leave)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_work(settings))
    if not quiet:
        # A terminal shows ^C where the cursor stands.
        note("\nstopped" if sys.stderr.isatty() else "stopped")


async def _work(settings: Settings) -> None:
    async with main.opened_for_operator(settings) as app:
        loop = asyncio.get_running_loop()
        working = loop.create_task(worker.work(app))

        def stop(number: int, frame: FrameType | None) -> None:
            for one in SIGNALS:
                signal.signal(one, signal.SIG_DFL)
            loop.call_soon_threadsafe(working.cancel)

        for number in SIGNALS:
            signal.signal(number, stop)
        note(f"Muniment {__version__} does the jobs of {settings.shown_database}")
        with contextlib.suppress(asyncio.CancelledError):
            await working
