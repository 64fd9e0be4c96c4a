"""A server process with the fake engine: `python fake_server.py IMAGE_S OPTION=VALUE...`"""

import ast
import logging
import sys

from captioner.errors import CaptionerError
from captioner_server import logs
from captioner_server.main import run
from captioner_server.options import ServerOptions
from support.engines import FakeEngine

if __name__ == "__main__":
    image_s, *rest = sys.argv[1:]
    given = {key: ast.literal_eval(value) for key, value in (item.split("=", 1) for item in rest)}
    logs.set_up("json", logging.INFO)
    try:
        sys.exit(run(lambda: FakeEngine(image_s=float(image_s)), ServerOptions(**{"port": 0, **given})))
    except CaptionerError as error:
        print(f"captioner: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
