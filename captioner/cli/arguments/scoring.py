"""What captions are scored against, and the data of METEOR."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from captioner.cli.arguments.values import named
from captioner.cli.output import say
from captioner.errors import how_to_install

if TYPE_CHECKING:
    from captioner.metrics import Meteor

REFERENCES_HELP = (
    "captions that people wrote: JSON of Karpathy or COCO, Flickr8k tokens, CSV with the columns image and "
    "caption, JSON lines (corrections of a gallery, too), or a folder of photos with text files"
)


def add_meteor_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--meteor-data` and `--no-meteor`; None if they are not given."""
    meteor = parser.add_mutually_exclusive_group()
    meteor.add_argument(
        "--meteor-data",
        type=named,
        metavar="FOLDER",
        help="METEOR 1.5's archive and paraphrases (default: those of an installed pycocoevalcap)",
    )
    meteor.add_argument(
        "--no-meteor", action="store_true", default=None, help="leave out METEOR, which takes seconds"
    )


def load_meteor(data: str | None) -> Meteor:
    """METEOR with the data of this folder, or of pycocoevalcap; says on stderr which variant it is.

    Raises `DataError`."""
    from captioner.metrics import Meteor
    from captioner.metrics.tables import label

    meteor = Meteor.load(data)
    if meteor.key != "meteor":
        say(f"{label(meteor.key)}; for METEOR 1.5: {how_to_install('metrics')}")
    return meteor
