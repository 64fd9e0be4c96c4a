"""`captioner model`: what a bundle holds, whether it is valid, which models there are, and which is used."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from captioner.cli.output import say
from captioner.errors import BundleError
from captioner.options import BUNDLE_OPTIONS
from captioner.printable import printable
from captioner.readable_json import dump_json

if TYPE_CHECKING:
    from captioner.model.bundle import Bundle


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "model",
        help="list, choose, show, verify or remove models",
        description="List, choose, show, verify or remove models.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for action, help in (
        ("show", "print what a bundle holds and its model card"),
        ("verify", "check every file's digest, and that the graphs caption an image"),
    ):
        command = actions.add_parser(action, help=help, description=f"{help[0].upper()}{help[1:]}.")
        command.add_argument(
            "bundle",
            nargs="?",
            metavar="MODEL",
            help="name or folder (default: the chosen model, or else the embedded one)",
        )
        if action == "show":
            command.add_argument(
                "--json", action="store_true", help="print bundle.json and the digest instead"
            )
    command = actions.add_parser(
        "list", help="print the models by name", description="Print the models by name."
    )
    command.add_argument("--json", action="store_true", help="print a JSON array of objects instead")
    command = actions.add_parser(
        "use",
        help="use a model from now on",
        description="Use a model wherever no --model is given, until another is chosen. captioner serve and"
        " Python programs say themselves which model they load.",
    )
    command.add_argument("name", metavar="MODEL", help="name or folder; default is the embedded model")
    command = actions.add_parser(
        "remove",
        help="delete a model that was taught",
        description="Delete a model that was taught and kept by name. If it is the chosen one, the embedded"
        " model is used from then on.",
    )
    command.add_argument("name", metavar="NAME", help="as captioner model list prints it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a command line asks for."""

    action: str
    bundle: str | None
    as_json: bool
    name: str

    @classmethod
    def read(cls, args: argparse.Namespace) -> Request:
        return cls(
            action=args.action,
            bundle=getattr(args, "bundle", None),
            as_json=getattr(args, "json", False),
            name=getattr(args, "name", ""),
        )


def run(args: argparse.Namespace) -> int:
    from captioner.model.bundle import DEFAULT, Bundle
    from captioner.model.installed import used_model

    request = Request.read(args)
    if request.action == "list":
        return _list(request.as_json)
    if request.action == "use":
        return _use(request.name)
    if request.action == "remove":
        return _remove(request.name)
    folder = used_model(request.bundle) or DEFAULT
    bundle = Bundle.load(folder)
    if request.action == "verify":
        return _verify(bundle, folder)
    if request.as_json:
        print(dump_json({"model": bundle.identity, "digest": bundle.digest, **bundle.manifest}, indent=2))
        return 0
    return _show(bundle, folder)


def _list(as_json: bool) -> int:
    """Print each model's name, its folder, and which is used; if that is gone, the others all the same."""
    from captioner.model.bundle import DEFAULT
    from captioner.model.installed import chosen, installed_models

    models = installed_models()
    try:
        used = chosen() or DEFAULT
        if used not in models.values():
            models[str(used)] = used
    except BundleError as error:
        used = None
        say(str(error))
    if as_json:
        rows = [{"name": name, "folder": str(at), "used": at == used} for name, at in models.items()]
        print(dump_json(rows, indent=2))
        return 0
    for name, folder in models.items():
        mark = "\tused" if folder == used else ""
        print(f"{printable(name)}\t{printable(str(folder))}{mark}")
    return 0


def _use(name: str) -> int:
    from captioner.model.bundle import Bundle
    from captioner.model.installed import choose, model_folder

    bundle = Bundle.load(model_folder(name))
    choose(name)
    say(f"{bundle.identity} is used from now on")
    return 0


def _remove(name: str) -> int:
    from captioner.model.bundle_files import DEFAULT_NAME
    from captioner.model.installed import remove

    then = f"; {DEFAULT_NAME} is used from now on" if remove(name) else ""
    say(f"{name} was removed{then}")
    return 0


def _show(bundle: Bundle, folder: Path) -> int:
    from captioner.model.bundle import CARD
    from captioner.model.bundle_files import read_bundle_file

    for name, value in _facts(bundle, folder).items():
        print(f"{name + ':':<12} {printable(value)}")
    print()
    for line in read_bundle_file(folder / CARD).decode("utf-8", "replace").splitlines():
        print(printable(line))
    return 0


def _facts(bundle: Bundle, folder: Path) -> dict[str, str]:
    from captioner.model.bundle import MANIFEST

    size = sum((folder / name).stat().st_size for name in (*bundle.files, MANIFEST))
    fitted = ", letterboxed" if bundle.letterbox else ""
    upto = "up to " if bundle.letterbox else ""
    heads = f", {bundle.manifest['heads']} heads" if bundle.manifest.get("heads", 1) != 1 else ""
    sentinel = " and a sentinel" if bundle.has_sentinel else ""
    facts = {
        "model": bundle.identity,
        "folder": str(folder),
        "size": f"{size / 1e6:.1f} MB",
        "input": f"{bundle.image_size} x {bundle.image_size} pixels{fitted}",
        "precision": " and ".join(bundle.precisions),
        "maps": f"{upto}{bundle.grid[0]} x {bundle.grid[1]}{heads}{sentinel}",
        "vocabulary": f"{len(bundle.vocabulary)} words",
        "decoding": ", ".join(f"{name} {getattr(bundle.decoding, name)}" for name in BUNDLE_OPTIONS),
    }
    if "parameters" in bundle.manifest:
        facts["parameters"] = f"{bundle.manifest['parameters']:,}"
    return facts


def _verify(bundle: Bundle, folder: Path) -> int:
    from captioner.model.bundle import MANIFEST
    from captioner.trial import try_bundle

    checked = f"{len(bundle.files)} files as {MANIFEST} describes them"
    if find_spec("onnxruntime"):
        try_bundle(folder, bundle.digest)
        checked += ", graphs load and caption"
    else:
        say("ONNX Runtime is not installed, so the graphs were not loaded")
    print(f"{printable(bundle.identity)}\t{checked}")
    return 0
