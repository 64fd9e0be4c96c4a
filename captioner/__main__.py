"""`python -m captioner` is the command line."""

import sys

from captioner.cli.main import main

sys.exit(main())
