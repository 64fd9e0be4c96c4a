"""The flag for the wording of captions."""

from __future__ import annotations

import argparse


def add_style_argument(parser: argparse._ActionsContainer) -> None:
    """Add `--style`, as `captioner.folder.text.TextOptions` has it, which is loaded only to change a text."""
    parser.add_argument(
        "--style",
        choices=("caption", "alt"),
        default="caption",
        help="alt: alt text, a sentence of at most 125 characters that does not guess people's gender",
    )
