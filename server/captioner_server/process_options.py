"""What the server process loads and how it logs: the settings beside `ServerOptions`."""

# ruff: noqa: RUF009  (`_option` is `dataclasses.field`)
from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from captioner_server.logs import Format
from captioner_server.options import _option

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["auto", "float32", "int8"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOptions:
    """Which model is loaded, where it runs, and the form of the log."""

    model: tuple[str, ...] = _option(
        (),
        "model bundle, a folder; NAME=BUNDLE, several times, serves several models, the first by default; "
        "the name default is the embedded model (default: default)",
    )
    device: Device = _option("auto", "auto uses CUDA where it works; cuda refuses to start where it does not")
    precision: Precision = _option("auto", "auto computes in INT8 where the model has it and the CPU gains")
    threads: int | None = _option(None, "CPU threads of the model (default: one per core)", 1)
    lanes: int | None = _option(
        None,
        "batches computed at once, each by its share of the threads (default: by the number of cores)",
        1,
    )
    log_format: Format = _option("text", "form of the log lines on stderr")
