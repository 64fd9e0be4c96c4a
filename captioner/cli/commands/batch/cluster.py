"""`captioner batch --engine ray`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, NoReturn

from captioner.cli.arguments.model import LocalModel
from captioner.cli.arguments.outputs import make_transform
from captioner.cli.commands.batch.names import read_list
from captioner.cli.commands.batch.request import Request
from captioner.cli.output import INTERRUPTED, interrupted, report_failure, say
from captioner.cli.signals import handling
from captioner.printable import counted

if TYPE_CHECKING:
    from captioner.folder.cluster.options import RayOptions
    from captioner.folder.cluster.run import RayRun


def caption_on_cluster(request: Request, ray: RayOptions) -> int:
    """Caption what is new; the exit status."""
    from captioner.folder.cluster.actor import Job
    from captioner.folder.cluster.run import RayRun
    from captioner.model.calibration import Calibration
    from captioner.trial import load_bundle

    assert isinstance(request.model, LocalModel)
    folder = request.model.bundle
    bundle = load_bundle(folder)
    report = _say_nothing if request.quiet else say
    job = Job(
        uri=request.sources[0] if request.sources else ".",
        out=request.output,
        bundle=None if folder is None else str(folder.absolute()),
        options=request.options,
        limits=request.limits,
        ray=ray,
        transform=make_transform(request, Calibration.of(bundle.manifest)),
    )
    run = RayRun(
        job,
        model=bundle.identity,
        selection=request.selection,
        names=read_list(request),
        wording=repr((request.text, request.min_confidence)),
        retry_failed=request.retry_failed,
        overwrite=request.overwrite,
        report=report,
    )
    # Ray prints what happens to nodes.
    with handling([signal.SIGTERM], _interrupt), redirect_stdout(sys.stderr), run:
        return _work(run, report)


def _work(run: RayRun, report: Callable[[str], None]) -> int:
    """Do what is left; the exit status. Failures are printed, all else goes to `report`."""
    report(f"{run.total - run.left} of {run.total} images are done already")
    done = 0
    try:
        for shard in run:
            done += shard.images
            for name, reason in shard.failed.items():
                report_failure(name, reason)
            report(f"{done} of {run.left} images")
    except KeyboardInterrupt:
        report(f"{interrupted(done, run.left)}; the same command resumes")
        return INTERRUPTED
    report(f"{counted(run.total, 'image')} in all, {run.failed} of them failed")
    return 1 if run.failed else 0


def _interrupt(number: int, frame: object) -> NoReturn:
    """As Ctrl-C: unfinished shards are discarded, finished ones are kept."""
    raise KeyboardInterrupt


def _say_nothing(_: str) -> None:
    """With --quiet."""
