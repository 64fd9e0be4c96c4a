"""A server process with the fake engine: `python fake_server.py IMAGE_S OPTION=VALUE...`"""

import ast
import logging
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("", "client", "server", "tests")]

from captioner.errors import CaptionerError  # noqa: E402
from captioner_server import logs  # noqa: E402
from captioner_server.main import run  # noqa: E402
from captioner_server.options import ServerOptions  # noqa: E402
from support.engines import FakeEngine  # noqa: E402

if __name__ == "__main__":
    image_s, *rest = sys.argv[1:]
    given = {key: ast.literal_eval(value) for key, value in (item.split("=", 1) for item in rest)}
    logs.set_up("json", logging.INFO)
    try:
        sys.exit(run(lambda: FakeEngine(image_s=float(image_s)), ServerOptions(**{"port": 0, **given})))
    except CaptionerError as error:
        print(f"captioner: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
