"""`probity`, and `python -m probity`: the command line."""

import signal
import sys

from probity.service.process.startup_signals import StartupSignals


def main() -> None:
    """Entry point of the `probity` command.

    `serve` handles SIGTERM before its imports, which take long; the other commands clear away what is half done.
    """
    if sys.argv[1:2] == ["serve"]:
        StartupSignals()
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    from probity.cli import app

    app(prog_name="probity")


if __name__ == "__main__":
    main()
