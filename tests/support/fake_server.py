"""A server process with the fake model: `python fake_server.py IMAGE_S OPTION=VALUE...`"""

import ast
import logging
import sys
from pathlib import Path

from captioner.errors import CaptionerError
from captioner_server.captioning.model_source import ModelSource
from captioner_server.main import run
from captioner_server.observation import logs
from captioner_server.options import ServerOptions
from support.models import FakeModel
from support.patience import PATIENCE_S

if __name__ == "__main__":
    image_s, *rest = sys.argv[1:]
    given = {key: ast.literal_eval(value) for key, value in (item.split("=", 1) for item in rest)}
    given |= {
        name: Path(value) for name, value in given.items() if name.endswith(("_file", "_key", "_certificate"))
    }
    writer = logs.set_up("json", logging.INFO)
    model = FakeModel(image_s=float(image_s))
    model.breaks_after = given.pop("breaks_after", None)
    patient = {"max_wait_s": PATIENCE_S, "grace_s": PATIENCE_S}
    try:
        options = ServerOptions(**{"port": 0, "lame_duck_s": 0.0, **patient, **given})
        sys.exit(run([ModelSource("default", lambda: model)], options, writer))
    except CaptionerError as error:
        print(f"captioner: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
