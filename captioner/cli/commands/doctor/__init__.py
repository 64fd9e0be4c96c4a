"""`captioner doctor`: what is installed, and what captions are computed with, to paste into a report."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from captioner.cli.arguments.model import add_device_argument, add_precision_argument
from captioner.cli.commands.doctor.section import Section, attempt
from captioner.printable import printable
from captioner.readable_json import dump_json


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "doctor",
        help="print what is installed and used, for a report",
        description="Print what is installed, what the missing extras would add, the model, the device and"
        " the precision with the reasons, and the CUDA libraries that were found, to paste into a report.",
    )
    parser.add_argument("--model", metavar="MODEL", help="name or folder (default: the one that is used)")
    add_device_argument(parser)
    add_precision_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a command line asks for."""

    model: str | None
    device: str
    precision: str
    as_json: bool

    @classmethod
    def read(cls, args: argparse.Namespace) -> Request:
        return cls(
            model=args.model,
            device=args.device or "auto",
            precision=args.precision or "auto",
            as_json=args.json,
        )


def run(args: argparse.Namespace) -> int:
    request = Request.read(args)
    sections = []
    for section in _sections(request):
        sections.append(section)
        if not request.as_json:  # at once: a fault in a library may end the process
            print(_text(section), flush=True)
    problems = list(dict.fromkeys(problem for section in sections for problem in section.problems))
    if request.as_json:
        report = {section.name: section.facts for section in sections}
        print(dump_json({**report, "problems": problems}, indent=2))
    else:
        print("problems:", *(f"  {printable(problem)}" for problem in problems or ["none"]), sep="\n")
    return 1 if problems else 0


def _sections(request: Request) -> Iterator[Section]:
    from captioner.cli.commands.doctor import cuda, packages, used

    yield attempt("system", used.system)
    yield attempt("packages", packages.installed)
    yield attempt("extras", packages.extras)
    yield attempt("photos", used.photos)
    yield attempt("model", lambda: used.model(request.model))
    yield attempt("runtime", lambda: used.runtime(request.model, request.device, request.precision))
    yield attempt("cuda", cuda.found)


def _text(section: Section) -> str:
    lines = [f"{section.name}:"]
    if section.name == "packages":  # many short facts
        facts = ", ".join(f"{name} {fact}" for name, fact in section.facts.items())
        indented = textwrap.TextWrapper(100, initial_indent="  ", subsequent_indent="  ")
        indented.break_on_hyphens = False
        lines.append(indented.fill(printable(facts)))
        return "\n".join(lines)
    for name, fact in section.facts.items():
        lines.append(f"  {name + ':':<12} {printable(fact)}")
    return "\n".join(lines)
