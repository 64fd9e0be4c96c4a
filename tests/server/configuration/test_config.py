"""Settings of `captioner serve`: flags, variables, a file, one precedence."""

import math
from contextlib import suppress
from pathlib import Path

import pytest

from captioner.cli.main import main
from captioner.errors import OptionsError
from captioner_server.captioning.model_source import parse_models
from captioner_server.configuration.config import resolve, unknown_variables
from captioner_server.configuration.process_options import ProcessOptions
from captioner_server.options import ServerOptions

ROOT = Path(__file__).resolve().parents[3]


def write(folder: Path, text: str) -> Path:
    path = folder / "server.toml"
    path.write_text(text)
    return path


def test_a_folder_called_as_an_installed_model_stays_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.toml").write_text('model = ["./default", "other=./default"]')
    assert resolve({}, {"CAPTIONER_MODEL": "./default"}).values["model"] == ("default=./default",)
    values = resolve({}, {}, Path("config.toml")).values
    assert values["model"] == ("default=./default", "other=./default")


def test_flags_come_before_variables_before_the_file_before_defaults(tmp_path) -> None:
    file = write(tmp_path, "port = 1\nqueue_size = 2\nmax_calls = 3\n")
    environment = {"CAPTIONER_PORT": "4", "CAPTIONER_QUEUE_SIZE": "5"}
    config = resolve({"port": 6}, environment, file)
    options = config.make(ServerOptions)
    assert (options.port, options.queue_size, options.max_calls, options.max_streams) == (6, 5, 3, 64)
    names = ("port", "queue_size", "max_calls", "max_streams")
    assert [config.sources[name] for name in names] == ["flag", "environment", str(file), "default"]


def test_what_kubernetes_sets_for_a_service_of_that_name_is_no_setting() -> None:
    links = {f"CAPTIONER_{name}": "tcp://10.0.0.1:50051" for name in ("PORT", "HTTP_PORT", "METRICS_PORT")}
    environment = links | {"CAPTIONER_SERVICE_HOST": "10.0.0.1", "CAPTIONER_SERVICE_PORT": "50051"}
    config = resolve({}, environment)
    assert (config.values["port"], config.sources["port"]) == (50051, "default")
    assert config.values["http_port"] is config.values["metrics_port"] is None
    assert unknown_variables(environment) == []


@pytest.mark.parametrize("name", ["environment", "flag"])
def test_a_file_may_have_any_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text("port = 1\nqueue_size = 2\n")
    values = resolve({"port": 3}, {}, Path(name)).values
    assert (values["port"], values["queue_size"]) == (3, 2)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path) -> None:
    assert resolve({}, {}, write(tmp_path, "\ufeffgrace_s = 3")).values["grace_s"] == 3.0


def test_values_get_the_type_of_their_setting(tmp_path) -> None:
    file = write(tmp_path, 'grace_s = 3\ntoken_file = "secret/token"\nlog_format = "json"\n')
    values = resolve({}, {"CAPTIONER_METRICS_PORT": "9090"}, file).values
    assert values["grace_s"] == 3.0
    assert values["token_file"] == tmp_path / "secret" / "token"
    assert values["log_format"] == "json"
    assert values["metrics_port"] == 9090


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("queue-size = 3", "queue-size is not a setting; did you mean queue_size?"),
        ("max_cals = 3", "max_cals is not a setting; did you mean max_calls?"),
        ("zebra = 3", "zebra is not a setting"),
        ("[server]\nport = 3", "server is not a setting"),
        ('port = "many"', "port: must be a whole number, got 'many'"),
        ("port = true", "port: must be a whole number, got True"),
        ("port = 1.5", "port: must be a whole number, got 1.5"),
        ('precision = "half"', "precision: must be one of auto, float32, int8, got 'half'"),
        ("port = ", "is not valid TOML"),
        (f"port = {'1' * 5000}", "is not valid TOML"),
        (f"port = {'[' * 100_000}", "is not valid TOML: too many brackets"),
        (f"port{'.x' * 5000} = 1", "is not valid TOML: more than 100 tables within each other"),
        (f"grace_s = {'1' * 400}", "grace_s: must be a number"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path, text, message) -> None:
    with pytest.raises(OptionsError) as raised:
        resolve({}, {}, write(tmp_path, text))
    assert message in str(raised.value)
    assert "server.toml" in str(raised.value)


@pytest.mark.parametrize("command", ["serve", "demo"])
def test_devices_are_those_of_other_commands(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert resolve({}, {"CAPTIONER_DEVICE": "cuda:1"}).make(ProcessOptions).device == "cuda:1"
    with pytest.raises(OptionsError, match="device must be one of auto, cpu, cuda and cuda:N, got 'tpu'"):
        resolve({}, {"CAPTIONER_DEVICE": "tpu"}).make(ProcessOptions)
    with suppress(SystemExit):
        assert main([command, "--device", "cuda:x"]) == 2
    assert "device must be one of auto, cpu, cuda and cuda:N, got 'cuda:x'" in capsys.readouterr().err


def test_variables_name_the_home_folder_as_a_shell_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Units of systemd and files of variables hold a ~ that no shell sees."""
    monkeypatch.setenv("HOME", str(tmp_path))
    environment = {
        "CAPTIONER_TOKEN_FILE": "~/tokens",
        "CAPTIONER_MODEL": "default,dogs=~/my/dogs,~/cats,hens",
    }
    values = resolve({}, environment).values
    assert values["token_file"] == tmp_path / "tokens"
    assert parse_models(values["model"]) == {
        "default": "default",
        "dogs": f"{tmp_path}/my/dogs",
        "cats": f"{tmp_path}/cats",
        "hens": "hens",
    }


def test_what_is_wrong_in_a_variable_is_named() -> None:
    with pytest.raises(OptionsError, match="CAPTIONER_PORT: must be a whole number, got"):
        resolve({}, {"CAPTIONER_PORT": "10.0.0.1:50051"})


def test_misspelled_variables_are_remarked_on_and_those_of_kubernetes_are_not() -> None:
    environment = {"CAPTIONER_QUEU_SIZE": "3", "CAPTIONER_SERVICE_HOST": "10.0.0.1", "PATH": ""}
    assert unknown_variables(environment) == [
        "CAPTIONER_QUEU_SIZE is not a setting; did you mean CAPTIONER_QUEUE_SIZE?"
    ]


def test_the_printed_configuration_is_one_that_is_read(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("CAPTIONER_MAX_WAIT_S", "7.5")
    monkeypatch.chdir(tmp_path)
    flags = ["--port", "0", "--log-format", "json", "--token-file", 'a "b".txt', "--stuck-s", "inf"]
    flags += ["--model", "dogs", "--model", "cats=more/cats", "--model", "default"]
    assert main(["serve", *flags, "--print-config"]) == 0
    printed = capsys.readouterr().out
    assert "port = 0  # flag" in printed
    assert "max_wait_s = 7.5  # environment" in printed
    monkeypatch.delenv("CAPTIONER_MAX_WAIT_S")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    read = resolve({}, {}, write(elsewhere, printed)).values
    assert read["stuck_s"] == math.inf
    assert read["model"] == (f"dogs={tmp_path}/dogs", f"cats={tmp_path}/more/cats", "default")
    assert (read["port"], read["max_wait_s"], read["log_format"]) == (0, 7.5, "json")
    assert read["token_file"] == tmp_path / 'a "b".txt'


def test_a_wrong_configuration_is_one_line_and_exit_status_2(tmp_path, capsys) -> None:
    assert main(["serve", "--config", str(tmp_path / "none.toml")]) == 2
    assert "cannot read" in capsys.readouterr().err
    assert main(["serve", "--config", str(write(tmp_path, "queue_size = 0"))]) == 2
    assert "queue_size must be at least 1" in capsys.readouterr().err


def test_the_example_is_a_valid_configuration() -> None:
    resolve({}, {}, ROOT / "deploy" / "server.toml").make(ServerOptions)


@pytest.mark.parametrize("name", ["TOKEN_FILE", "TLS_CERTIFICATE", "TLS_KEY", "TLS_CLIENT_CA"])
def test_a_file_for_safety_must_not_be_empty(name: str) -> None:
    with pytest.raises(OptionsError, match=f"CAPTIONER_{name} is set and empty"):
        resolve({}, {f"CAPTIONER_{name}": ""})
    assert resolve({}, {"CAPTIONER_TRACE_ENDPOINT": ""}).values["trace_endpoint"] is None
