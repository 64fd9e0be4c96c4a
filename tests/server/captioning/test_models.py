"""Several models under names, and models that are replaced while they serve."""

import asyncio
import gc
import json
import shutil
import threading
import weakref
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import grpc
import httpx
import pytest
from support.models import FakeModel
from support.patience import PATIENCE_S, wait_until
from support.serving import RunningServer, make_image, serve

from captioner.errors import BundleError, OptionsError
from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub
from captioner_server.captioning.model_source import ModelSource, find_models, parse_models
from captioner_server.captioning.supervisor import FAILURES
from captioner_server.configuration.config import resolve
from captioner_server.configuration.process_options import ProcessOptions
from captioner_server.inference import grpc_predict_v2_pb2 as oip
from captioner_server.inference.grpc_predict_v2_pb2_grpc import GRPCInferenceServiceStub
from captioner_server.reload import Reloader

IMAGE = make_image(1)


def fake(name: str) -> FakeModel:
    made = FakeModel()
    made.name, made.model, made.digest = name, f"{name}@1", name.encode().hex().ljust(64, "0")
    return made


@pytest.fixture
def server():
    with serve(None, decode_workers=1) as running:
        running.call(running.server.open({"cats": fake("cats"), "dogs": fake("dogs")}))
        yield running


@pytest.fixture
def channel(server: RunningServer):
    with grpc.insecure_channel(server.address) as channel:
        yield channel


def test_a_request_names_its_model(channel) -> None:
    stub = CaptionServiceStub(channel)
    for name, model in (("", "cats@1"), ("cats", "cats@1"), ("dogs", "dogs@1")):
        assert stub.Caption(pb.CaptionRequest(image=IMAGE, model=name)).caption.model == model
        *_, last = stub.StreamCaption(pb.StreamCaptionRequest(image=IMAGE, model=name))
        assert last.caption.model == model
        shown = stub.GetModel(pb.GetModelRequest(model=name))
        assert (shown.name, shown.served_as) == (model[:4], model[:4])
        assert list(shown.models) == ["cats", "dogs"]
    with pytest.raises(grpc.RpcError) as raised:
        stub.Caption(pb.CaptionRequest(image=IMAGE, model="birds"))
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND
    assert raised.value.details() == "there is no model 'birds', only cats, dogs"


def test_each_image_of_a_batch_names_its_model(channel) -> None:
    names = ("dogs", "birds", "", "cats")
    requests = [pb.CaptionBatchRequest(id=name, image=IMAGE, model=name) for name in names]
    answers = {answer.id: answer for answer in CaptionServiceStub(channel).CaptionBatch(iter(requests))}
    assert answers["birds"].error.reason == "model_not_found"
    assert [answers[name].caption.model for name in ("dogs", "", "cats")] == ["dogs@1", "cats@1", "cats@1"]


def test_the_inference_protocol_knows_the_names(channel) -> None:
    stub = GRPCInferenceServiceStub(channel)
    for name, version in (("captioner", "cats"), ("cats", "cats"), ("dogs", "dogs")):
        shown = stub.ModelMetadata(oip.ModelMetadataRequest(name=name))
        assert shown.name == name
        assert list(shown.versions) == [version.encode().hex().ljust(12, "0")]
    with pytest.raises(grpc.RpcError) as raised:
        stub.ModelMetadata(oip.ModelMetadataRequest(name="birds"))
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND


def test_http_requests_name_their_model() -> None:
    with serve(None, decode_workers=1, http_port=0) as server:
        server.call(server.server.open({"cats": fake("cats"), "dogs": fake("dogs")}))
        with httpx.Client(base_url=server.server.http_url, timeout=PATIENCE_S) as http:
            for query, name in (("", "cats"), ("?model=cats", "cats"), ("?model=dogs", "dogs")):
                assert http.post(f"/v1/caption{query}", content=IMAGE).json()["model"] == f"{name}@1"
                events = http.post(f"/v1/caption:stream{query}", content=IMAGE).text
                assert f'"model":"{name}@1"' in events.rpartition("event: caption")[2]
                shown = http.get(f"/v1/model{query}").json()
                assert (shown["name"], shown["served_as"], shown["models"]) == (name, name, ["cats", "dogs"])
            for answer in (
                http.post("/v1/caption?model=birds", content=IMAGE),
                http.post("/v1/caption:stream?model=birds", content=IMAGE),
                http.get("/v1/model?model=birds"),
            ):
                assert answer.status_code == 404
                error = {"code": "MODEL_NOT_FOUND", "message": "there is no model 'birds', only cats, dogs"}
                assert error.items() <= answer.json()["error"].items()


class Upgrades:
    """A source that loads what it is told to."""

    def __init__(self, server: RunningServer) -> None:
        self.next: FakeModel | Exception = fake("cats")
        sources = [ModelSource("cats", self._load)]
        self._server = server
        self._reloader = Reloader(sources, server.server.models, server.server.metrics)

    def _load(self) -> FakeModel:
        if isinstance(self.next, Exception):
            raise self.next
        return self.next

    def reload(self) -> None:
        self._server.call(self._reloader.reload())

    def count(self, outcome: str) -> float:
        return self._server.metric("reloads_total", name="cats", outcome=outcome)


def test_a_model_is_replaced_under_load_and_no_request_is_lost(server, channel) -> None:
    upgrades, stop = Upgrades(server), threading.Event()
    models: list[str] = []
    errors: list[Exception] = []

    def call() -> None:
        stub = CaptionServiceStub(channel)
        while not stop.is_set():
            try:
                models.append(stub.Caption(pb.CaptionRequest(image=IMAGE), timeout=PATIENCE_S).caption.model)
            except grpc.RpcError as error:
                errors.append(error)

    def stream() -> None:
        def requests():
            while not stop.wait(0.02):
                yield pb.CaptionBatchRequest(id="1", image=IMAGE)

        for answer in CaptionServiceStub(channel).CaptionBatch(requests()):
            models.append(answer.caption.model)

    callers = [threading.Thread(target=work) for work in (call, call, stream)]
    for caller in callers:
        caller.start()
    for name in ("tigers", "lions"):
        upgrades.next = fake(name)
        upgrades.reload()
        seen = len(models)
        while len(models) < seen + 20 and not errors:
            stop.wait(0.05)
    stop.set()
    for caller in callers:
        caller.join(PATIENCE_S)
    assert not errors
    assert {"tigers@1", "lions@1"} <= set(models) <= {"cats@1", "tigers@1", "lions@1"}
    last = CaptionServiceStub(channel).Caption(pb.CaptionRequest(image=IMAGE), timeout=PATIENCE_S)
    assert last.caption.model == "lions@1"
    assert upgrades.count("replaced") == 2
    labels = {"name": "cats", "device": "cpu", "provider": "FakeProvider", "precision": "float32"}
    assert server.metric("model_info", model="lions@1", **labels) == 1
    assert server.metric("model_info", model="cats@1", **labels) == 0


def test_the_memory_of_a_replaced_model_is_freed(server, caplog) -> None:
    """Cycles hold it, which Python would find only after many calls."""
    caplog.set_level("INFO", "captioner_server.captioning.models")
    models = server.server.models
    old = [weakref.ref(models.get("cats")), weakref.ref(models.get("cats").model)]
    upgrades = Upgrades(server)
    upgrades.next = fake("lions")
    gc.disable()
    try:
        upgrades.reload()
        wait_until(lambda: "model closed" in caplog.text)
        assert [one() for one in old] == [None, None]
    finally:
        gc.enable()


class Broken(FakeModel):
    """Loads, and fails when it is warmed up. Its error is logged without its frames, which hold it."""

    def caption_pixels(self, pixels, options=None):
        raise BundleError("the graphs do not fit each other")


def test_the_memory_of_a_bad_model_is_freed(server) -> None:
    upgrades, broken = Upgrades(server), Broken()
    broken.digest, bad, upgrades.next = "ff" * 32, weakref.ref(broken), broken
    del broken
    gc.disable()
    try:
        upgrades.reload()
        assert upgrades.count("failed") == 1
        upgrades.next = fake("cats")
        wait_until(lambda: bad() is None)
    finally:
        gc.enable()


def test_a_bad_model_leaves_the_old_one_serving(server, channel) -> None:
    upgrades, stub = Upgrades(server), CaptionServiceStub(channel)
    broken = fake("broken")
    broken.breaks_after = 0  # it loads, and fails when it is warmed up
    for bad in (BundleError("decoder.onnx is not what bundle.json describes"), broken):
        upgrades.next = bad
        upgrades.reload()
        assert stub.Caption(pb.CaptionRequest(image=IMAGE)).caption.model == "cats@1"
    assert upgrades.count("failed") == 2
    upgrades.next = fake("cats")
    upgrades.reload()
    assert upgrades.count("unchanged") == 1


def test_reloads_are_counted_from_zero(server) -> None:
    """Else the first failure would be no increase, and raise no alert."""
    Upgrades(server)
    registry = server.server.metrics.registry
    for outcome in ("replaced", "unchanged", "failed"):
        labels = {"name": "cats", "outcome": outcome}
        assert registry.get_sample_value("captioner_reloads_total", labels) == 0


def test_changed_files_are_noticed_once_they_are_complete(server, tmp_path, monkeypatch) -> None:
    missing_threads = iter(range(3))
    to_thread = asyncio.to_thread

    async def later(*work: object) -> object:
        if next(missing_threads, None) is not None:
            raise RuntimeError("can't start new thread")
        return await to_thread(*work)

    monkeypatch.setattr(asyncio, "to_thread", later)
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (bundle / "bundle.json").write_text("{}")
    loaded = []

    def load() -> FakeModel:
        loaded.append((bundle / "bundle.json").read_text())
        return fake("new")

    async def watch() -> None:
        source = ModelSource("cats", load, bundle)
        reloader = Reloader([source], server.server.models, server.server.metrics)
        watching = asyncio.create_task(reloader.watch(0.05))
        await asyncio.sleep(0.3)
        assert not loaded
        (bundle / "bundle.json").write_text('{"new": true}')
        while not loaded:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)
        watching.cancel()

    server.call(watch())
    assert loaded == ['{"new": true}']


def found(given: Sequence[str]) -> dict[str, Path | None]:
    return find_models(parse_models(given))


def test_models_are_named_by_the_command_line_and_the_file(tmp_path) -> None:
    assert found([]) == {"default": None}
    assert found(["dogs=./dogs", "default"]) == {"dogs": Path("dogs"), "default": None}
    assert found(["some/bundle"]) == {"bundle": Path("some/bundle")}
    assert found(["main=default"]) == {"main": None}
    for wrong in (["a=x", "a=y"], ["my model"]):
        with pytest.raises(OptionsError, match="write NAME=BUNDLE"):
            parse_models(wrong)
    with pytest.raises(BundleError, match=r"there is no model defualt; .* did you mean default"):
        found(["dogs=defualt"])
    file = tmp_path / "server.toml"
    file.write_text('model = ["dogs=dogs", "default"]')
    given = resolve({}, {}, file).make(ProcessOptions).model
    assert found(given) == {"dogs": tmp_path / "dogs", "default": None}


def test_installed_models_are_served_by_name(tmp_path, tiny_bundle, user_folder) -> None:
    """Also by a configuration in another folder, and with another name."""
    taught = shutil.copytree(tiny_bundle, user_folder / "models" / "hens")
    file = tmp_path / "server.toml"
    file.write_text('model = ["hens", "birds=hens"]')
    given = resolve({}, {}, file).make(ProcessOptions).model
    for models in (["hens", "birds=hens"], given):
        assert found(models) == {"hens": taught, "birds": taught}


def test_a_process_reloads_a_bundle_on_sighup(tmp_path, tiny_bundle) -> None:
    pytest.importorskip("onnxruntime")
    import signal
    import sys

    from support.processes import ServerProcess

    bundle = tmp_path / "bundle"
    shutil.copytree(tiny_bundle, bundle)
    flags = ["--model", f"mine={bundle}", "--port", "0", "--watch-s", "0", "--log-format", "json"]
    limits = ["--decode-workers", "1", "--max-batch-size", "1", "--device", "cpu", "--threads", "1"]
    process = ServerProcess([sys.executable, "-m", "captioner", "serve", *flags, *limits])
    try:
        process.wait_for("listening")
        process.tell(signal.SIGHUP)  # while the model is loaded: it is loaded again afterwards
        process.wait_for("serving")
        assert isinstance(process.wait_for("model unchanged")["seconds"], float)
        manifest = json.loads((bundle / "bundle.json").read_text())
        (bundle / "bundle.json").write_text(json.dumps(manifest | {"name": "changed"}))
        process.tell(signal.SIGHUP)
        assert process.wait_for("model replaced")["model"].startswith("changed@")
        (bundle / "decoder.onnx").write_bytes(b"torn")
        process.tell(signal.SIGHUP)
        reason = process.wait_for("model failed")["reason"]
        assert "decoder.onnx is not the file" in reason
        process.tell(signal.SIGTERM)
        assert process.end() == 0
    finally:
        process.process.kill()


def test_the_client_names_its_model(server) -> None:
    from captioner_client import CaptionClient, ClientOptions

    with CaptionClient(server.address, ClientOptions(model="dogs")) as client:
        assert client.caption([IMAGE])[0].model == "dogs@1"
        assert client.caption([IMAGE])[0].model == "dogs@1"
        assert list(client.stream(IMAGE))[-1].model == "dogs@1"
        assert client.get_model().name == "dogs"


def test_the_command_line_names_a_model_of_the_server(server, tmp_path, capsys, monkeypatch) -> None:
    from captioner.cli.main import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "dogs").mkdir()  # such as the bundle that the server was given, where both run
    (tmp_path / "photo.png").write_bytes(IMAGE)
    photo = str(tmp_path / "photo.png")
    server_flags = ["--server", server.address, "--model"]
    assert main(["caption", photo, "--json", *server_flags, "dogs"]) == 0
    assert json.loads(capsys.readouterr().out)["model"] == "dogs@1"
    out = str(tmp_path / "out")
    for command in (["caption"], ["overlay", "-o", f"{out}.png"], ["batch", "-o", f"{out}.csv"]):
        assert main([*command, photo, *server_flags, "hens"]) == 2  # as where the model is local
        assert "there is no model 'hens'" in capsys.readouterr().err
    assert main(["caption", photo, *server_flags, str(tmp_path)]) == 2
    assert "a server is asked for a model by name" in capsys.readouterr().err


def test_a_shadow_captions_a_share_too_and_nobody_waits_for_it() -> None:
    old, same, new = fake("old"), fake("same"), fake("new")
    new.describe = lambda pixels, options=None: FakeModel.describe(new, pixels // 2, options)  # type: ignore
    for shadow, outcome in ((same, "same"), (new, "different")):
        with serve(None, decode_workers=1, shadow="next", shadow_share=1.0) as server:
            server.call(server.server.open({"main": old, "next": shadow}))
            shadow.hold.clear()
            with grpc.insecure_channel(server.address) as channel:
                stub = CaptionServiceStub(channel)
                assert stub.Caption(pb.CaptionRequest(image=IMAGE)).caption.model == "old@1"
            shadow.hold.set()
            wait_until(partial(server.metric, "shadow_images_total", outcome=outcome))
            assert server.metric("shadow_images_total", outcome=outcome) == 1


def test_the_queue_of_a_shadow_scales_nothing() -> None:
    slow = fake("slow")
    with serve(None, decode_workers=1, max_batch_size=1, shadow="next", shadow_share=1.0) as server:
        server.call(server.server.open({"main": fake("old"), "next": slow}))
        models = server.server.models
        slow.hold.clear()
        try:
            with grpc.insecure_channel(server.address) as channel:
                for _ in range(4):
                    CaptionServiceStub(channel).Caption(pb.CaptionRequest(image=IMAGE), timeout=PATIENCE_S)
            wait_until(lambda: models.get("next").admitted == 4 and models.get("main").admitted == 0)
            main_s, shadow_s = models.get("main").expected_wait_s, models.get("next").expected_wait_s
            shown_s = server.metric("expected_wait_seconds")
        finally:
            slow.hold.set()
        assert shown_s == main_s < shadow_s


def test_a_shadow_that_fails_is_given_up_and_the_server_goes_on(caplog) -> None:
    old, new = fake("old"), fake("new")
    with serve(None, decode_workers=1, shadow="next", shadow_share=1.0, failing_s=0.0) as server:
        server.call(server.server.open({"main": old, "next": new}))
        new.breaks_after = 0
        with grpc.insecure_channel(server.address) as channel:
            stub = CaptionServiceStub(channel)

            def given_up() -> bool:
                answer = stub.Caption(pb.CaptionRequest(image=IMAGE), timeout=PATIENCE_S)
                assert answer.caption.model == "old@1"
                return "the shadow is given up" in caplog.text

            wait_until(given_up)
            wait_until(lambda: server.server.models.get("next").idle, "comparisons that had begun are over")
            assert server.server.state.serving
            failed = server.metric("shadow_images_total", outcome="failed")
            assert failed >= FAILURES
            stub.Caption(pb.CaptionRequest(image=IMAGE), timeout=PATIENCE_S)
            server.call(asyncio.sleep(0))
            assert server.metric("shadow_images_total", outcome="failed") == failed


def test_a_shadow_counts_from_zero() -> None:
    """Else a shadow without differences has no share of them."""
    with serve(FakeModel(), shadow="next", shadow_share=1.0) as server:
        registry = server.server.metrics.registry
        for outcome in ("same", "different", "failed", "dropped"):
            assert registry.get_sample_value("captioner_shadow_images_total", {"outcome": outcome}) == 0


def test_a_full_model_leaves_the_others_their_calls() -> None:
    cats, dogs = fake("cats"), fake("dogs")
    with serve(None, decode_workers=1, queue_size=1) as server:
        server.call(server.server.open({"cats": cats, "dogs": dogs}))
        cats.hold.clear()
        try:
            with grpc.insecure_channel(server.address) as channel:
                stub = CaptionServiceStub(channel)
                held = stub.Caption.future(pb.CaptionRequest(image=IMAGE), timeout=PATIENCE_S)
                wait_until(lambda: server.metric("admitted_images") == 1)
                with pytest.raises(grpc.RpcError) as raised:
                    stub.Caption(pb.CaptionRequest(image=IMAGE, model="cats"), timeout=PATIENCE_S)
                assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                answer = stub.Caption(pb.CaptionRequest(image=IMAGE, model="dogs"), timeout=PATIENCE_S)
                assert answer.caption.model == "dogs@1"
                cats.hold.set()
                assert held.result().caption.model == "cats@1"
        finally:
            cats.hold.set()


def test_a_shadow_must_be_served(capsys) -> None:
    from captioner.cli.main import main

    assert main(["serve", "--shadow", "other", "--print-config"]) == 2
    assert "shadow must name one of the models" in capsys.readouterr().err


def test_what_is_loaded_is_not_collected_again_and_again(server) -> None:
    """Each full collection would look through the modules and models, and stop all calls meanwhile."""
    assert gc.get_freeze_count() > 10_000
