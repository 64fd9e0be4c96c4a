"""Generate the committed stubs from the .proto files, or check them.

    python protos/generate.py              # write the stubs
    python protos/generate.py --check      # stubs fresh, lint clean, nothing broken since the baseline
    python protos/generate.py --baseline   # a release: what is there now must not be broken from here on

The compiler is pinned apart from the environment's own packages, because generated code asks for a
runtime at least as new as its compiler: an older compiler keeps the stubs usable with older runtimes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
BASELINE = PROTOS / "baseline.binpb"
COMPILER = "grpcio-tools==1.76.0"  # protobuf 6.31; pyproject.toml asks for no older runtimes than these
COMPILER_HOME = ROOT / "build" / COMPILER

# .proto file: (path it is compiled under, which becomes its Python package; folder the stubs go to)
FILES = {
    PROTOS / "captioner/v1/captioner.proto": ("captioner/v1", ROOT),
    PROTOS / "inference/grpc_predict_v2.proto": ("captioner_server/inference", ROOT / "server"),
}

ALSO_ELSEWHERE = {PROTOS / "inference/grpc_predict_v2.proto"}
"""Whose messages other packages bring too (tritonclient): protobuf's one pool for all takes no name twice, so
ours stay in a pool of their own."""
OWN_POOL = (b"_descriptor_pool.Default()", b"_descriptor_pool.DescriptorPool()")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--check", action="store_true", help="change nothing; exit with 1 if something is off")
    group.add_argument("--baseline", action="store_true", help="make the present API the one to keep")
    args = parser.parse_args()
    if args.baseline:
        return run("buf", "build", PROTOS, "--exclude-source-info", "-o", BASELINE)
    if args.check:
        return check()
    for target, text in generate().items():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text)
    return 0


def check() -> int:
    stale = [path for path, text in generate().items() if not path.is_file() or path.read_bytes() != text]
    for path in stale:
        print(f"{path.relative_to(ROOT)} is not what protos/generate.py makes", file=sys.stderr)
    failed = [
        run("buf", "lint", PROTOS),
        run("buf", "format", "--diff", "--exit-code", PROTOS),
        run("buf", "breaking", PROTOS, "--against", BASELINE),
    ]
    return 1 if stale or any(failed) else 0


def generate() -> dict[Path, bytes]:
    """The stubs as they should be: their paths and contents."""
    if not COMPILER_HOME.is_dir():
        install_compiler()
    environment = {**os.environ, "PYTHONPATH": str(COMPILER_HOME)}
    stubs: dict[Path, bytes] = {}
    for source, (package, destination) in FILES.items():
        with tempfile.TemporaryDirectory() as folder:
            command = [
                *(sys.executable, "-m", "grpc_tools.protoc"),
                f"--proto_path={package}={source.parent}",
                f"--python_out={folder}",
                f"--pyi_out={folder}",
                f"--grpc_python_out={folder}",
                f"{package}/{source.name}",
            ]
            subprocess.run(command, env=environment, check=True)
            for path in sorted(Path(folder).rglob("*.py*")):
                text = path.read_bytes()
                if source in ALSO_ELSEWHERE:
                    text = text.replace(*OWN_POOL)
                stubs[destination / path.relative_to(folder)] = text
    return stubs


def install_compiler() -> None:
    COMPILER_HOME.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=COMPILER_HOME.parent) as folder:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, COMPILER]
        subprocess.run(pip, check=True)
        aside = COMPILER_HOME.with_suffix(".part")  # an interrupted copy is not taken for the compiler
        shutil.copytree(folder, aside, dirs_exist_ok=True)
        aside.rename(COMPILER_HOME)


def run(*command: str | Path) -> int:
    # Tools of this environment are found whether or not it is activated.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    program = shutil.which(str(command[0]), path=path)
    if program is None:
        print(f"{command[0]} is not installed: pip install '.[dev]'", file=sys.stderr)
        return 1
    return subprocess.run([program, *command[1:]], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
