"""Make the corpus anew, small examples of what is well formed: python fuzz/seeds.py"""

from __future__ import annotations

import io
import shutil
import struct
from pathlib import Path

from PIL import Image

from captioner_server.inference import grpc_predict_v2_pb2 as pb

ROOT = Path(__file__).parent
CORPUS = ROOT / "corpus"
TINY = ROOT.parent / "tests" / "data" / "tiny-bundle"


def main() -> None:
    shutil.rmtree(CORPUS, ignore_errors=True)
    photo = Image.linear_gradient("L").resize((16, 12))
    kinds = [("JPEG", "RGB"), ("JPEG", "CMYK"), ("PNG", "RGB"), ("PNG", "P"), ("PNG", "LA"), ("GIF", "P")]
    kinds += [("WEBP", "RGB"), ("AVIF", "RGB"), ("TIFF", "RGB"), ("BMP", "RGB"), ("JPEG2000", "RGB")]
    for format, mode in [*kinds, ("PPM", "L")]:
        buffer = io.BytesIO()
        photo.convert(mode).save(buffer, format)
        save("images", f"{format}-{mode}", buffer.getvalue())
    buffer = io.BytesIO()
    photo.save(buffer, "JPEG", progressive=True)
    save("images", "JPEG-progressive", buffer.getvalue())

    request = pb.ModelInferRequest(model_name="captioner", id="1")
    request.inputs.add(name="IMAGE", datatype="BYTES", shape=[1, 1])
    request.parameters["beam_size"].int64_param = 3
    request.outputs.add(name="CAPTION")
    request.raw_input_contents.append(struct.pack("<I", 3) + b"abc")
    save("inference", "raw", request.SerializeToString())
    del request.raw_input_contents[:]
    request.inputs[0].contents.bytes_contents.append(b"abc")
    save("inference", "typed", request.SerializeToString())

    save("graphs", "decoder", (TINY / "decoder.onnx").read_bytes()[:2000])
    save("bundles", "tiny", (TINY / "bundle.json").read_bytes())
    save("captions", "jsonl", b'{"image": "a.jpg", "captions": ["a dog"]}\n')
    save("captions", "flickr8k", b"a.jpg#0\ta dog\na.jpg#1\ta cat\n")
    save("captions", "csv", b"image,caption\na.jpg,a dog\n")
    save("captions", "csv_lines", b'"image\nof a dog",caption\na.jpg,"a dog\nruns"\n')
    coco = (
        b'{"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [{"image_id": 1, "caption": "a dog"}]}'
    )
    save("captions", "coco", coco)


def save(target: str, name: str, content: bytes) -> None:
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)


if __name__ == "__main__":
    main()
