"""The options of the server process besides `ServerOptions`: its models and its log."""

# ruff: noqa: RUF009  (`option` is `dataclasses.field`)
from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from captioner.model.graphs.device import DEVICE_HELP, DEVICES, check_device
from captioner_server.observation.logs import Format
from captioner_server.options import option

Precision = Literal["auto", "float32", "int8"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOptions:
    """The models to load, their device, and the log format. Raises `OptionsError` for an unknown device."""

    model: tuple[str, ...] = option(
        (),
        "folder of a model bundle, or name of an installed model; repeat as NAME=BUNDLE to serve several, of "
        'which the first is the default; "default" is the embedded model (default: default)',
    )
    device: str = option("auto", f"{DEVICES}: {DEVICE_HELP}")
    precision: Precision = option(
        "auto", "auto computes in INT8 if the model has it and the CPU gains from it"
    )
    threads: int | None = option(None, "CPU threads of the model (default: one per core)", 1)
    lanes: int | None = option(
        None,
        "batches computed at once, each with its share of the threads (default: by the number of cores)",
        1,
    )
    log_format: Format = option("text", "format of log lines on stderr")

    def __post_init__(self) -> None:
        check_device(self.device)
