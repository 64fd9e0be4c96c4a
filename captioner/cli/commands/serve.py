"""`captioner serve`: answer caption requests over gRPC and HTTP."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from captioner.cli.output import say
from captioner.errors import OptionsError
from captioner_server.captioning.model_source import ModelSource, find_models, parse_models
from captioner_server.configuration.config import resolve, unknown_variables
from captioner_server.configuration.process_options import ProcessOptions
from captioner_server.configuration.settings import GROUPS, Setting
from captioner_server.options import ServerOptions
from captioner_server.process.environment import settle_environment

_CONFIG_HELP = (
    "TOML file with settings, named like the flags with underscores: queue_size = 64. "
    "Flags take precedence over CAPTIONER_* variables (CAPTIONER_QUEUE_SIZE=64), variables over the file"
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "serve",
        help="answer caption requests over gRPC and HTTP",
        description="Serve models over gRPC and HTTP until SIGTERM or Ctrl-C; open calls are then finished. "
        "A second signal ends it at once.",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help=_CONFIG_HELP)
    parser.add_argument(
        "--print-config", action="store_true", help="print every setting and where it comes from, then exit"
    )
    for name, settings in GROUPS.items():
        group = parser.add_argument_group(name)
        for setting in settings:
            _add_flag(group, setting)


def run(args: argparse.Namespace) -> int:
    settle_environment()
    from captioner.captioner import Captioner
    from captioner.trial import load_bundle
    from captioner_server.main import run as serve
    from captioner_server.observation import logs

    for remark in unknown_variables(os.environ):
        say(f"warning: {remark}")
    config = resolve(vars(args), os.environ, args.config)
    options, process = config.make(ServerOptions), config.make(ProcessOptions)
    named = parse_models(process.model)
    if options.shadow is not None and options.shadow not in list(named)[1:]:
        raise OptionsError("shadow must name one of the models, and not the first", "shadow")
    if args.print_config:
        print(config.to_toml(), end="")
        return 0
    models = find_models(named)
    writer = logs.set_up(process.log_format)

    def source(name: str, folder: Path | None) -> ModelSource:
        def load() -> Captioner:
            return Captioner.load(
                load_bundle(folder),
                device=process.device,
                threads=process.threads,
                lanes=process.lanes,
                precision=process.precision,
                limits=options.image_limits,
            )

        return ModelSource(name, load, folder)

    return serve([source(*model) for model in models.items()], options, writer)


def _add_flag(group: argparse._ArgumentGroup, setting: Setting) -> None:
    """Add a flag that sets a value only if given, so that it is distinguished from a default."""
    shown = setting.default not in (None, (), False)
    described: dict[str, Any] = {
        "dest": setting.name,
        "default": argparse.SUPPRESS,
        "help": (setting.help + (f" (default: {setting.default})" if shown else "")).replace("%", "%%"),
    }
    if setting.kind is bool:
        group.add_argument(setting.flag, action=argparse.BooleanOptionalAction, **described)
        return
    if setting.choices:
        described["choices"] = setting.choices
    else:
        described["metavar"] = setting.name.rpartition("_")[2].upper()
    if setting.many:
        described["action"] = "append"
    group.add_argument(setting.flag, type=setting.kind, **described)
