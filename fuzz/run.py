"""Feed mutations of the corpus to what reads files and messages of strangers.

    python fuzz/run.py --seconds 60 --seed 1         # a minute over all targets, as CI does
    python fuzz/run.py --seconds 28800 --target images --keep out/fuzz   # a night, with what it finds kept

Atheris (libFuzzer) guides the mutations by coverage. A target that lets an error out, hangs for 20 s or takes
2 GiB ends with status 1; the input that did it lies in the folder of --keep.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent
NAMES = ("images", "inference", "graphs", "bundles", "captions")
_FUZZ = "--fuzz"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60, help="for all targets together (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="of the mutations (default: others each time)")
    parser.add_argument("--target", choices=NAMES, action="append", help="default: all")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where inputs of interest stay")
    args = parser.parse_args()
    targets = args.target or NAMES
    with tempfile.TemporaryDirectory() as temporary:
        keep = (args.keep or Path(temporary)).resolve()
        seconds = max(1, args.seconds // len(targets))
        failed = [name for name in targets if not run(name, seconds, args.seed, keep)]
        for path in sorted(keep.glob("*/crash-*")) if failed else ():
            print(f"{path}: {path.read_bytes()[:2000]!r}")
    print(
        f"{len(targets) - len(failed)} targets passed" + (f"; failed: {', '.join(failed)}" if failed else "")
    )
    return 1 if failed else 0


def run(name: str, seconds: int, seed: int, keep: Path) -> bool:
    found = keep / name
    found.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, __file__, _FUZZ, name, str(found), str(ROOT / "corpus" / name)]
    command += [f"-seed={seed}", f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=2048"]
    command += ["-max_len=65536", f"-artifact_prefix={found}/", "-print_final_stats=1", "-verbosity=0"]
    print(f"=== {name}, {seconds} s", flush=True)
    # Atheris ends a process without cleaning up: what it leaves goes into a folder that is deleted here.
    with tempfile.TemporaryDirectory() as temporary:
        return subprocess.run(command, env={**os.environ, "TMPDIR": temporary}).returncode == 0


def fuzz(name: str, arguments: list[str]) -> None:
    import warnings

    import atheris

    warnings.simplefilter("ignore")
    with atheris.instrument_imports(include=["captioner", "captioner_server", "PIL"]):
        sys.path.insert(0, str(ROOT))
        from targets import TARGETS
    atheris.Setup([sys.argv[0], *arguments], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    if sys.argv[1:2] == [_FUZZ]:
        fuzz(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(main())
