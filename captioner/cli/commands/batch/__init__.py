"""`captioner batch`: caption folders, archives and lists of images into a file, here or on a cluster."""

from __future__ import annotations

import argparse

from captioner.cli.commands.batch.arguments import add_parser
from captioner.cli.commands.batch.request import Request

__all__ = ["add_parser", "run"]


def run(args: argparse.Namespace) -> int:
    request = Request.read(args)
    if request.ray is None:
        from captioner.cli.commands.batch.here import caption_here

        return caption_here(request)
    from captioner.cli.commands.batch.cluster import caption_on_cluster

    return caption_on_cluster(request, request.ray)
