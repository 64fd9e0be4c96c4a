"""`captioner` and `python -m captioner` are the command line."""

import signal
import sys


def main() -> int:
    """While the command line is being imported, Ctrl-C ends the process at once, without a traceback."""
    # Where a script starts a command with &, it is ignored.
    ends = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ends:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from captioner.cli.main import main

    if ends:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return main()


if __name__ == "__main__":
    sys.exit(main())
