"""What callers take of a server, and what it computes in."""

import sys
from collections.abc import Sequence
from types import SimpleNamespace

import grpc
import pytest
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from support.models import FakeModel
from support.patience import PATIENCE_S
from support.serving import RunningServer, make_image, serve

from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub
from captioner_server.observation.metrics import Metrics

IMAGE = make_image(1)


def share(server: RunningServer, caller: str) -> tuple[float, float]:
    return (
        server.metric("caller_images_total", caller=caller),
        server.metric("caller_compute_seconds_total", caller=caller),
    )


def caption(server: RunningServer, metadata: Sequence[tuple[str, str]] = ()) -> None:
    with grpc.insecure_channel(server.address) as channel:
        stub = CaptionServiceStub(channel)
        assert stub.Caption(pb.CaptionRequest(image=IMAGE), metadata=metadata, timeout=PATIENCE_S)
        assert list(
            stub.StreamCaption(pb.StreamCaptionRequest(image=IMAGE), metadata=metadata, timeout=PATIENCE_S)
        )
        batch = [pb.CaptionBatchRequest(id=str(n), image=IMAGE) for n in range(2)]
        assert len(list(stub.CaptionBatch(iter(batch), metadata=metadata, timeout=PATIENCE_S))) == 2


def test_shares_go_by_the_names_of_tokens(tmp_path) -> None:
    (tmp_path / "tokens").write_text("alice a-token\nbob b-token\n")
    with serve(
        FakeModel(image_s=0.01), token_file=tmp_path / "tokens", metrics_callers=True, decode_workers=1
    ) as server:
        caption(server, [("authorization", "Bearer a-token")])
        with pytest.raises(grpc.RpcError):
            caption(server, [("authorization", "Bearer wrong")])
        images, seconds = share(server, "alice")
        assert images == 4
        assert seconds >= 0.04
        assert share(server, "bob") == share(server, "other") == (0, 0)


def test_errors_are_counted_by_reason(tmp_path) -> None:
    (tmp_path / "tokens").write_text("alice a-token\nbob b-token\n")
    model = FakeModel()
    with (
        serve(model, token_file=tmp_path / "tokens", decode_workers=1) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        model.breaks_after = 0
        for token, image in (("a-token", b"no image"), ("a-token", IMAGE), ("wrong", IMAGE)):
            with pytest.raises(grpc.RpcError):
                CaptionServiceStub(channel).Caption(
                    pb.CaptionRequest(image=image),
                    metadata=[("authorization", f"Bearer {token}")],
                    timeout=PATIENCE_S,
                )
        with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):  # reflection can be guessed at too
            ProtoReflectionDescriptorDatabase(channel).get_services()
        found = {
            reason: server.metric("refused_calls_total", reason=reason)
            for reason in ("not_an_image", "internal", "unauthenticated")
        }
        assert found == {"not_an_image": 1, "internal": 1, "unauthenticated": 2}


def test_callers_without_a_token_share_a_label() -> None:
    with serve(FakeModel(), decode_workers=1) as server:
        caption(server)
        caption(server)  # over a connection of its own
        assert share(server, "other")[0] == 8
        assert server.metric("compute_seconds_count", precision="float32") > 0


def test_there_is_a_limit_to_the_labels() -> None:
    metrics = Metrics(name_callers=True)
    for number in range(150):
        metrics.count_share(f"caller-{number}", 1.0)
    metrics.count_share("caller-7", 1.0)
    samples = [
        sample
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "captioner_caller_compute_seconds_total"
    ]
    assert len(samples) == 101
    assert sum(sample.value for sample in samples) == 151
    assert {sample.labels["caller"]: sample.value for sample in samples}["other"] == 50


def test_a_gpu_that_does_not_answer_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(gpu: int) -> SimpleNamespace:
        if gpu == 1:
            raise ValueError("GPU is lost")
        return SimpleNamespace(used=10 + gpu, total=100)

    nvml = SimpleNamespace(
        NVMLError=ValueError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 3,
        nvmlDeviceGetHandleByIndex=lambda number: number,
        nvmlDeviceGetMemoryInfo=read,
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    registry = Metrics().registry
    found = [
        registry.get_sample_value("captioner_gpu_memory_bytes", {"gpu": str(gpu), "kind": "used"})
        for gpu in range(3)
    ]
    assert found == [10, None, 12]
