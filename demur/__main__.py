"""`demur`, and `python -m demur`: the command line."""

import os
import signal
import sys
from typing import NoReturn

from demur.service.process.startup_signals import StartupSignals, Terminated


def main() -> None:
    """Entry point of the `demur` command.

    `serve` handles SIGTERM before its imports, which take long; the other commands clear away what is half done.
    """
    if sys.argv[1:2] == ["serve"]:
        StartupSignals()
    else:
        signal.signal(signal.SIGTERM, _terminate)
    # FastAPI ends with a traceback where this names what is not installed, in commands that trace nothing too.
    os.environ.pop("OTEL_PROPAGATORS", None)
    from .cli import app

    try:
        app(prog_name="demur")
    except Terminated:
        sys.exit(128 + signal.SIGTERM)


def _terminate(*_: object) -> NoReturn:
    raise Terminated


if __name__ == "__main__":
    main()
