"""The flags for the wording of captions."""

from __future__ import annotations

import argparse

from captioner.options import STYLE_HELP, STYLES


def add_style_argument(parser: argparse._ActionsContainer) -> None:
    """Add `--style`."""
    parser.add_argument(
        "--style",
        choices=STYLES,
        default=STYLES[0],
        help=STYLE_HELP,
    )


def add_text_arguments(group: argparse._ArgumentGroup) -> None:
    add_style_argument(group)
    group.add_argument("--prefix", default="", metavar="TEXT", help="put TEXT before each caption")
    group.add_argument("--suffix", default="", metavar="TEXT", help="put TEXT after each caption")
    group.add_argument(
        "--template",
        default="{caption}",
        metavar="TEXT",
        help="write TEXT with {caption}, {name}, {stem} and {folder} filled in",
    )
    group.add_argument("--capitalize", action="store_true", help="capitalize the first letter")
    group.add_argument(
        "--sentence", action="store_true", help="capitalize the first letter and end with a full stop"
    )
    group.add_argument(
        "--drop-openings", action="store_true", help="remove openings such as 'a photo of' and 'there is'"
    )
    group.add_argument(
        "--min-confidence",
        type=float,
        metavar="P",
        help="leave out captions whose confidence is below P, 0 to 1",
    )
