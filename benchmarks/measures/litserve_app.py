"""The same model behind LitServe: photos are decoded in the model's process, as its documentation has it.

python litserve_app.py PORT     the variable BENCHMARK_MODEL names the bundle
"""

# No `from __future__ import annotations`: LitServe compares the annotation of `decode_request` with Request.
import os
import sys
from typing import Any

import litserve
import numpy as np
from fastapi import Request

from captioner import Captioner


class CaptionAPI(litserve.LitAPI):
    def setup(self, device: str) -> None:
        self.captioner = Captioner.load(os.environ.get("BENCHMARK_MODEL"), device="cpu")

    def decode_request(self, request: Request) -> Any:
        return self.captioner.preprocess(request["image"].file.read())

    def batch(self, inputs: list[Any]) -> Any:
        return np.stack(inputs)

    def predict(self, batch: Any) -> list[str]:
        return [caption.text for caption in self.captioner.caption_pixels(batch)]

    def unbatch(self, output: list[str]) -> list[str]:
        return output

    def encode_response(self, output: str) -> dict[str, str]:
        return {"caption": output}


if __name__ == "__main__":
    api = CaptionAPI(max_batch_size=16, batch_timeout=0.005)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False)
