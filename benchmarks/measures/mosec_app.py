"""The same model behind mosec, as its documentation suggests: one stage decodes photos, the next one batches
them for the model. The variable BENCHMARK_MODEL names the bundle."""

from __future__ import annotations

import os
import sys
from typing import Any

import mosec
from mosec.utils import get_mosec_path

_CORES = os.cpu_count() or 1


class Decode(mosec.Worker):
    def __init__(self) -> None:
        from captioner import Bundle
        from captioner.images.preparation import Preparation

        bundle = Bundle.load(os.environ.get("BENCHMARK_MODEL"))
        self.load = Preparation(bundle.image_size, bundle.letterbox).load

    def deserialize(self, data: bytes) -> bytes:
        return data

    def forward(self, data: bytes) -> Any:
        return self.load(data)


class Caption(mosec.Worker):
    def __init__(self) -> None:
        from captioner import Captioner

        self.captioner = Captioner.load(os.environ.get("BENCHMARK_MODEL"), device="cpu")

    def forward(self, data: list[Any]) -> list[str]:
        import numpy as np

        return [caption.text for caption in self.captioner.caption_pixels(np.stack(data))]


if __name__ == "__main__":
    if get_mosec_path() is None:  # mosec would try to start a program called None
        sys.exit("mosec's own program is not among this Python's scripts: install mosec with its pip")
    server = mosec.Server()
    server.append_worker(Decode, num=_CORES)
    server.append_worker(Caption, max_batch_size=16, max_wait_time=5)
    server.run()
