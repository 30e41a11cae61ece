"""The accuracy of models that are trained in each precision, and by TPUStrategy, with one seed, on the data sets of
$TANDEM_DATA."""

import gzip
import json
import os
import pathlib
import sys
import tempfile

from bench_parts.common import BUILD, ROOT, output_of, table
from bench_parts.compiled import plugin

EPOCHS = {"lenet": 3, "resnet20": 10, "transformer": 1}
GPU = "float16 on a GPU"  # emulated if there is none


def trainings():
    """Name, arguments, environment."""
    yield "float32", ["--precision", "float32"], {}
    yield "mixed_bfloat16", ["--precision", "mixed_bfloat16"], {}
    for level in ("O1", "O2"):
        yield f"{level}, bfloat16", ["--precision", level, "--dtype", "bfloat16"], {}
    emulated = {"TANDEM_EMULATED_GPUS": "1"}
    yield f"mixed_float16, {GPU}", ["--precision", "mixed_float16"], emulated
    for level in ("O1", "O2"):
        yield f"{level}, {GPU}", ["--precision", level, "--dtype", "float16"], emulated
    if os.path.exists(plugin()):
        yield "float32, TPUStrategy", ["--strategy", "tpu"], {"TANDEM_PJRT_PLUGIN": plugin()}


def data_of(model, folder, work):
    if model == "lenet":
        return f"mnist:{folder / 'mnist'}"
    if model == "resnet20":
        return f"cifar10:{folder / 'cifar10'}"
    text = pathlib.Path(work, "text")
    text.write_bytes(gzip.decompress((folder / "text/tinyshakespeare.txt.gz").read_bytes()))
    return text


def measure_accuracy():
    folder = pathlib.Path(os.environ.get("TANDEM_DATA", ROOT / "../shared/data"))
    if not folder.is_dir():
        sys.exit(f"bench: accuracy needs data sets, and there is no {folder}; set TANDEM_DATA")
    with tempfile.TemporaryDirectory() as work:
        for model, epochs in EPOCHS.items():
            data = data_of(model, folder, work)
            for name, arguments, environment in trainings():
                command = [BUILD / "accuracy", "--model", model, "--data", data, "--epochs", str(epochs), *arguments]
                result = json.loads(output_of(command, environment, timeout=3600))
                print(f"{model} {name}: loss {result['loss']}, accuracy {result['accuracy']}", file=sys.stderr)
                yield {"program": "accuracy", "epochs": epochs, **result, "precision": name}


def print_accuracy(records):
    rows, exact = [], {}
    for record in records:
        if record["program"] != "accuracy":
            continue
        base = exact.setdefault(record["model"], record)  # the first one is in float32
        rows.append([record["model"], record["epochs"], record["precision"],
                     f"{100 * record['accuracy']:.2f}", f"{100 * (record['accuracy'] - base['accuracy']):+.2f}",
                     f"{record['loss']:.4f}", f"{100 * (record['loss'] / base['loss'] - 1):+.1f} %"])
    if rows:
        table("Accuracy on test data", ["model", "epochs", "precision", "accuracy", "points", "loss", "of float32's"], rows)
