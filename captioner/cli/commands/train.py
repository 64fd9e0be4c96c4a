"""`captioner train`: learn from captions."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import captioner
from captioner.cli.arguments.model import add_device_argument, add_threads_argument
from captioner.cli.arguments.values import new_path
from captioner.cli.output import say
from captioner.configuration import read_toml
from captioner.cores import check_parallel
from captioner.errors import DataError, did_you_mean

if TYPE_CHECKING:
    from captioner.training.config.train_options import TrainOptions

RECIPES = Path(captioner.__file__).parent / "training" / "recipes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a command line asks for."""

    config: Path
    changes: Mapping[str, str]
    """Single values in TOML by dotted name."""
    output: Path | None
    """Folder of the run; None for one that is named by the configuration."""
    data_root: Path
    cache: Path
    device: str
    threads: int | None

    @classmethod
    def read(cls, args: argparse.Namespace) -> Request:
        """Raises `DataError` before PyTorch is imported, which takes seconds."""
        check_parallel("threads", args.threads)
        config = _config(args)
        return cls(
            config=config,
            changes=_changes(args),
            output=args.output,
            data_root=args.data_root or config.parent,
            cache=args.cache,
            device=args.device or "auto",
            threads=args.threads,
        )


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "train",
        help="train a model",
        description="Train a model from a configuration. Run the same command again to resume.",
    )
    parser.add_argument(
        "config",
        metavar="CONFIG",
        help=f"a TOML file, or the name of an included recipe: {', '.join(_recipes())}",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=new_path,
        metavar="RUN",
        help="folder of the run (default: runs/NAME)",
        default=None,
    )
    parser.add_argument(
        "--data-root",
        type=Path,
        metavar="DIR",
        help="folder that paths in CONFIG are relative to (default: that of CONFIG)",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        default=Path("runs/cache"),
        help="folder for computed features (default: %(default)s)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="change one option of CONFIG, for instance model.hidden=256 or stages.0.epochs=2",
    )
    for part in ("attention", "decoder", "encoder"):
        parser.add_argument(f"--{part}", metavar="NAME", help=f"short for --set model.{part}=NAME")
    add_device_argument(parser)
    add_threads_argument(parser)


def run(args: argparse.Namespace) -> int:
    return train(Request.read(args))


def train(request: Request) -> int:
    """Train, or go on; the exit status."""
    import torch

    from captioner.files.locks import hold_folder
    from captioner.training.config.train_options import TrainOptions

    if request.threads is not None:
        torch.set_num_threads(request.threads)
    options = TrainOptions.read(request.config, request.changes)
    folder = request.output or Path("runs") / options.name
    with hold_folder(folder):
        _train(request, options, folder)
    return 0


def _train(request: Request, options: TrainOptions, folder: Path) -> None:
    from captioner.training.device import torch_device
    from captioner.training.loop.trainer import Trainer
    from captioner.training.progress import Progress

    data_root = request.data_root
    progress = Progress()
    device = torch_device(request.device)
    try:
        trainer = Trainer(options, folder, data_root, request.cache, device, progress)
        trainer.run()
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C or another signal
        saved = folder / "last.pt"
        then = f"resumes from {saved}" if saved.exists() else "starts again: nothing was saved yet"
        say(f"interrupted; the same command {then}")
        raise
    if (folder / "best.pt").exists():
        kept, what, release = folder / "best.pt", "best", ["--evaluate", str(data_root)]
    else:
        kept, what, release = folder / "last.pt", "last", []
        progress.note("there is no best.pt, because there were no photos to validate on")
    held = f"the {what} weights are in {kept}"
    if trainer.start_is_better:
        held = f"keep that model; the best weights of this run are in {kept}, if you want them all the same"
    progress.note(f"{held}: {shlex.join(['captioner', 'export', str(kept), '-o', 'BUNDLE', *release])}")


def _recipes() -> list[str]:
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def _config(args: argparse.Namespace) -> Path:
    """The file of the configuration. Raises `DataError` if it cannot be read or the data are not there."""
    given, recipe = Path(args.config), RECIPES / f"{args.config}.toml"
    config = recipe if recipe.exists() and not given.is_file() else given
    if not config.exists():
        recipes = _recipes()
        raise DataError(
            f"there is no configuration {given}; included recipes are {', '.join(recipes)}"
            f"{did_you_mean(given.stem, recipes)}"
        )
    read_toml(config)
    if args.data_root is not None and not args.data_root.is_dir():
        raise DataError(f"--data-root: there is no folder {args.data_root}")
    return config


def _changes(args: argparse.Namespace) -> dict[str, str]:
    changes = {}
    for text in args.set:
        name, equals, value = text.partition("=")
        if not equals:
            raise DataError(f"--set takes NAME=VALUE, got {text!r}")
        changes[name] = value
    for part in ("attention", "decoder", "encoder"):
        if getattr(args, part) is not None:
            changes[f"model.{part}"] = getattr(args, part)
    return changes
