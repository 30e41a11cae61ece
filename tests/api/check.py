"""Runs a program of examples/ or tests/api/programs/ and compares what it prints with what its comments say.

    check.py BUILD_FOLDER devices [--emulated-gpus N]
    check.py BUILD_FOLDER session_towers [--emulated-gpus N]
    check.py BUILD_FOLDER memory [--emulated-gpus N]
    check.py BUILD_FOLDER virtual_gpus
    check.py BUILD_FOLDER data_parallel [--emulated-gpus N | --fake-gpus N --fake-cuda FOLDER]
    check.py BUILD_FOLDER mixed_precision [--emulated-gpus N | --fake-gpus N --fake-cuda FOLDER]
    check.py BUILD_FOLDER fit_mirrored [--mnist FOLDER | --synthetic]
    check.py BUILD_FOLDER custom_loop [--emulated-gpus N]
    check.py BUILD_FOLDER twins
    check.py BUILD_FOLDER multi_worker [--launcher TANDEM] [--ranks N]
    check.py BUILD_FOLDER train_and_evaluate [--launcher TANDEM]
    check.py BUILD_FOLDER parameter_server --launcher TANDEM
    check.py BUILD_FOLDER process_groups [--launcher TANDEM]
    check.py BUILD_FOLDER csv
    check.py BUILD_FOLDER ddp [--launcher torchrun | --launcher PATH_OF_TANDEM]

Exits with 77 (skipped) if the data is not on this machine, unless TANDEM_CI_EXPECTS lists it.
"""

import argparse
import json
import os
import pathlib
import random
import re
import socket
import shutil
import struct
import subprocess
import sys
import tempfile

SKIPPED = 77


def run(program, arguments=(), cwd=None, environment=None):
    result = subprocess.run([program, *arguments], cwd=cwd, env={**os.environ, **(environment or {})},
                            capture_output=True, text=True, timeout=800)
    if result.returncode != 0:
        sys.exit(f"{program} ended with {result.returncode}\n{result.stdout}\n{result.stderr}")
    return result.stdout, result.stderr


def expect(condition, what, *outputs):
    if not condition:
        sys.exit("\n".join([f"does not hold: {what}", *outputs]))


def check_devices(build, options):
    gpus = options.emulated_gpus
    environment = {"TANDEM_EMULATED_GPUS": str(gpus) if gpus else ""}
    out, err = run(build / "01_devices", environment=environment)
    where = f"/job:localhost/replica:0/task:0/device:{'GPU' if gpus else 'CPU'}:0"
    lines = out.splitlines()
    expected = [
        f"Num GPUs Available: {gpus}",
        "[[22. 28.]",
        " [49. 64.]]",
        f"(2, 2) float32 {where}",
        "/job:localhost/replica:0/task:0/device:CPU:0",
    ]
    expect(lines[:5] == expected, f"the first lines are {expected}", out, err)
    expect(lines[-1] == "4 22", "the last line is '4 22'", out, err)
    message = "\n".join(lines[5:-1])
    for part in ("MatMul", "gpu:7", "device:CPU:0", *(f"device:GPU:{i}" for i in range(gpus))):
        expect(part in message, f"the error for a missing device names {part}", out, err)
    expect(f"Executing op MatMul in device {where}" in err, f"the placement log has MatMul on {where}", out, err)
    expect("Executing op MatMul in device /job:localhost/replica:0/task:0/device:CPU:0" in err,
           "the placement log has MatMul on CPU:0", out, err)


def check_report(report, where, *outputs):
    for part in ("float32", where, "requested ", "limit 128.0 MiB", "in use ", "peak ", "reserved ",
                 "largest free block ", "fragmentation ", "Try a smaller batch"):
        expect(part in report, f"the report of the missing memory has '{part}'", report, *outputs)


def check_memory(build, options):
    gpus = options.emulated_gpus
    out, err = run(build / "03_memory", environment={"TANDEM_EMULATED_GPUS": f"{gpus}:512" if gpus else ""})
    lines = out.splitlines()
    if not gpus:
        expect(lines == ["no GPU: set TANDEM_EMULATED_GPUS=2"], "one line is printed where there is no GPU", out, err)
        return
    expected = [f"/physical_device:GPU:{i} Emulated GPU {512 << 20} 1" for i in range(gpus)]
    expected += [f"{gpus} Physical GPUs, 2 Logical GPUs",
                 "Physical devices cannot be modified after being initialized (by list_logical_devices). Call "
                 "config::set_memory_growth before the first operation and before anything that lists logical devices.",
                 "64 64 128"]
    expect(lines[:-1] == expected, f"the first lines are {expected}", out, err)
    check_report(lines[-1], "/job:localhost/replica:0/task:0/device:GPU:1", out, err)
    for part in ("(32, 1024, 1024)", "requested 128.0 MiB (134217728 bytes)", "in use 64.0 MiB (activations 64.0 MiB)",
                 "largest free block 64.0 MiB", "device:GPU:0, which has 128.0 MiB free"):
        expect(part in lines[-1], f"the report has '{part}'", out, err)


def check_virtual_gpus(build, options):
    out, err = run(build / "virtual_gpus")
    at_once, pieces, *rest = out.splitlines()
    expect(at_once.startswith("at once: OOM") and "requested 129.0 MiB" in at_once, "129 MiB are refused", out, err)
    expect(pieces.startswith("after 128 MiB: OOM") and "in use 128.0 MiB (activations 128.0 MiB)" in pieces
           and "largest free block 0.0 MiB" in pieces, "the 129th MiB is refused", out, err)
    for report in (at_once, pieces):
        check_report(report, "/job:localhost/replica:0/task:0/device:GPU:0", out, err)
    expect(rest == [f"neighbour: {16 << 20:.6g} 64", f"after freeing: {64 << 18:.6g} 64"],
           "the neighbour is unharmed and the program goes on", out, err)


def gpus_of(options):
    """The number of GPUs, and the environment that gives a program this many."""
    if options.fake_gpus:
        return options.fake_gpus, {"LD_LIBRARY_PATH": options.fake_cuda, "FAKE_CUDA_GPUS": str(options.fake_gpus)}
    gpus = options.emulated_gpus
    return gpus, {"TANDEM_EMULATED_GPUS": str(gpus) if gpus else ""}


def check_data_parallel(build, options):
    gpus, environment = gpus_of(options)
    out, err = run(build / "data_parallel", environment=environment)
    process = "/job:localhost/replica:0/task:0/device:"
    first, *rows = out.splitlines()
    expect(first == f"(32, 1000) {process}{'GPU:1' if gpus else 'CPU:0'}", "outputs are gathered on GPU:1", out, err)
    expect(len(rows) == max(gpus, 1), "the balance has a line per device", out, err)
    for i, row in enumerate(rows):
        device = f"{process}GPU:{i}" if gpus else f"{process}CPU:0"
        found = re.fullmatch(rf"{device}  peak (\d+\.\d) MiB  (\d+) % of the largest  busy (\d+ %|-)", row)
        expect(found and float(found[1]) > 0, f"{row} has peak MiB, share of the largest and busy share", out, err)
        expect(found[3] != "-" or not options.emulated_gpus, "emulated GPUs know how busy they were", out, err)
    expect(any("  100 % of the largest" in row for row in rows), "a device has the largest peak", out, err)


def check_mixed_precision(build, options):
    _, environment = gpus_of(options)
    out, err = run(build / "mixed_precision", environment=environment)
    trained, scaled = out.splitlines()
    expect(trained == "1 bfloat16 float32", "the loss falls, outputs are bfloat16 and weights float32", out, err)
    expect(scaled == "21 65536", "the step of the scaler is applied with the initial scale", out, err)


def check_session_towers(build, options):
    gpus = options.emulated_gpus
    environment = {"TANDEM_EMULATED_GPUS": str(gpus) if gpus else ""}
    out, err = run(build / "02_session_towers", environment=environment)
    process = "/job:localhost/replica:0/task:0/device:"
    devices = [f"{process}CPU:0", *(f"{process}GPU:{i}" for i in range(gpus))]
    lines = out.splitlines()
    mapping = (["Device mapping:", *(f"{process}GPU:{i} -> device: {i}, name: " for i in range(gpus))]
               if gpus else ["Device mapping: no known devices."])
    expect(all(line.startswith(start) for line, start in zip(lines, mapping)), f"first comes {mapping}", out, err)
    towers = ("GPU:2", "GPU:3") if gpus else ("CPU:0", "CPU:0")
    for line in (f"a: (Const): {process}{towers[0]}", f"MatMul: (MatMul): {process}{towers[0]}",
                 f"a_1: (Const): {process}{towers[1]}", f"MatMul_1: (MatMul): {process}{towers[1]}",
                 f"AddN: (AddN): {process}CPU:0", f"y: (MatMul): {process}CPU:0"):
        expect(lines.count(line) == 1, f"the placement has '{line}'", out, err)
        expect(line in err, f"the log has '{line}'", out, err)
    expect(lines[-4:-1] == ["[[ 44.  56.]", " [ 98. 128.]]", "(3, 2)"], "the sums and the shape", out, err)
    expect(lines[-1].startswith("Cannot assign a device for operation b: b was explicitly assigned to '/gpu:9' but "
                                f"available devices are [{', '.join(devices)}]."), "the error names it all", out, err)


def write_idx(path, magic, sizes, payload):
    path.write_bytes(struct.pack(f">I{len(sizes)}I", magic, *sizes) + payload)


def make_digits(folder, train=6000, test=1000):
    """Writes a dataset in MNIST's format that a small network learns in one epoch: ten noisy, shifted patterns."""
    generator = random.Random(7)
    cells = [[generator.random() < 0.5 for _ in range(49)] for _ in range(10)]
    # Each pattern has a margin that allows shifts by up to two pixels.
    fields = [[bytes(200 if 2 <= y < 30 and 2 <= x < 30 and pattern[(y - 2) // 4 * 7 + (x - 2) // 4] else 0
                     for x in range(32)) for y in range(32)] for pattern in cells]
    noise = bytes(i * 50 // 256 for i in range(256))
    for name, count in (("train", train), ("t10k", test)):
        labels = bytes(generator.randrange(10) for _ in range(count))
        images = bytearray()
        for label in labels:
            top, left = generator.randrange(5), generator.randrange(5)
            clean = b"".join(row[left:left + 28] for row in fields[label][top:top + 28])
            speckle = generator.randbytes(784).translate(noise)
            images += bytes(map(int.__add__, clean, speckle))
        write_idx(folder / f"{name}-images-idx3-ubyte", 0x803, (count, 28, 28), bytes(images))
        write_idx(folder / f"{name}-labels-idx1-ubyte", 0x801, (count,), labels)


def mnist_folder(options):
    folder = pathlib.Path(os.environ["TANDEM_DATA"], "mnist") if os.environ.get("TANDEM_DATA") else options.mnist
    if folder.is_dir():
        return folder.resolve()
    if "mnist" in os.environ.get("TANDEM_CI_EXPECTS", "").split(","):
        sys.exit("mnist is missing, and TANDEM_CI_EXPECTS says that this machine has it")
    print("mnist is not on this machine")
    sys.exit(SKIPPED)


def check_fit_mirrored(build, options):
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        if options.mnist:
            data = [str(mnist_folder(options))]
        elif options.synthetic:
            data = []
        else:
            data = [str(work / "mnist")]
            (work / "mnist").mkdir()
            make_digits(work / "mnist")
        out, err = run(build / "04_fit_mirrored", data, cwd=work)
        lines = out.splitlines()
        expect(lines[0] == "2", "two replicas are in sync", out, err)
        # 3*3*1*32 + 32, and 13*13*32*128 + 128, and 128*10 + 10.
        for parameters in ("320", "692352", "1290", "693962"):
            expect(re.search(rf"\b{parameters}\b", out.replace(",", "")), f"the summary tells {parameters} parameters",
                   out, err)
        accuracies = [float(line) for line in lines if re.fullmatch(r"[01](\.\d+)?", line)]
        least = 0.9 if options.synthetic else 0.97  # the synthetic ones are a third in number
        expect(accuracies and accuracies[-1] > least, f"accuracy above {least} after one epoch", out, err)
        check_safetensors(work / "weights.safetensors", 6, 693962, out, err)
        expect(any((work / "logs").rglob("events.out.tfevents.*")), "TensorBoard's event files are in logs/", out, err)


def check_safetensors(path, tensors, numbers, *outputs):
    expect(path.is_file(), f"{path.name} was written", *outputs)
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = content[8:8 + length].decode()
    expect(header.count('"F32"') == tensors, f"the file holds {tensors} float32 tensors", header, *outputs)
    expect(len(content) == 8 + length + 4 * numbers, f"the file holds {numbers} numbers", header, *outputs)


def check_custom_loop(build, options):
    gpus = options.emulated_gpus
    out, err = run(build / "05_custom_loop", environment={"TANDEM_EMULATED_GPUS": str(gpus) if gpus else ""})
    # The crossentropy of a weight and a bias after 100 steps on one example.
    loss = float(out)
    expect(0 < loss < 0.1, "the last loss is near 0", out, err)


def weights_of(path, *outputs):
    """The float32 tensors of a safetensors file, by name."""
    expect(path.is_file(), f"{path.name} was written", *outputs)
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, tensor in header.items():
        begin, end = tensor["data_offsets"]
        tensors[name] = struct.unpack(f"<{(end - begin) // 4}f", content[8 + length + begin:8 + length + end])
    return tensors


def run_workers_by_hand(program, count, cwd):
    """One process per worker, each with its TF_CONFIG."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    workers = []
    for index in range(count):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        workers.append(subprocess.Popen([program], cwd=cwd, env={**os.environ, "TF_CONFIG": json.dumps(config)},
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    for worker in workers:
        out, err = worker.communicate(timeout=300)
        expect(worker.returncode == 0, "every worker ends well", out, err)


def check_multi_worker(build, options):
    program = build.resolve() / "06_multi_worker"
    with tempfile.TemporaryDirectory() as alone, tempfile.TemporaryDirectory() as together:
        out, err = run(program, cwd=alone)
        expect(out.startswith("loss ") and float(out.split()[1]) < 0.5, "the loss is below 0.5", out, err)
        expected = weights_of(pathlib.Path(alone, "multi_worker.safetensors"))
        if options.launcher:
            run(options.launcher, ["run", "-n", str(options.ranks), "--", str(program)], cwd=together)
        else:
            run_workers_by_hand(str(program), options.ranks, together)
        weights = weights_of(pathlib.Path(together, "multi_worker.safetensors"))
        expect(sorted(weights) == sorted(expected) and len(weights) == 4, "there are four tensors", str(list(weights)))
        for name, values in weights.items():
            close = all(abs(a - b) <= 1e-5 * max(1, abs(b)) for a, b in zip(values, expected[name], strict=True))
            expect(close, f"{name} is as in one process", f"{values[:4]}... and {expected[name][:4]}...")
        expect(sorted(os.listdir(together)) == ["backup", "multi_worker.safetensors"], "no other file is written",
               str(os.listdir(together)))
        expect(not os.listdir(pathlib.Path(together, "backup")), "the backup is gone when training is through")


def check_parameter_server(build, options):
    program = str(build.resolve() / "11_parameter_server")
    out, err = run(options.launcher, ["run", "--ps", "2", "--workers", "2", "--chief", "--", program])
    losses = re.findall(r"^(?:\[chief:0\] )?([0-9.e-]+)$", out, re.MULTILINE)
    expect(len(losses) == 1 and float(losses[0]) < 0.1, "the loss is below 0.1", out, err)


def check_tpu(build, options):
    plugin = pathlib.Path(os.environ.get("TANDEM_PJRT_PLUGIN") or options.plugin)
    if not plugin.exists():
        if "pjrt" in os.environ.get("TANDEM_CI_EXPECTS", "").split(","):
            sys.exit("pjrt is missing, and TANDEM_CI_EXPECTS says that this machine has it")
        print("there is no PJRT plug-in on this machine")
        sys.exit(SKIPPED)
    out, err = run(build / "12_tpu", [str(plugin)])
    replicas, accuracy = out.splitlines()
    expect(replicas == "4", "four replicas are in sync", out, err)
    expect(float(accuracy) > 0.9, "accuracy above 0.9", out, err)


def check_train_and_evaluate(build, options):
    """Under the launcher two workers train and a third task evaluates. Alone, a second run has nothing left to train."""
    command, before = [], ""
    if options.launcher:
        command, before = [options.launcher, "run", "--workers", "2", "--evaluator", "--"], r"\[evaluator:0\] "
    program, *arguments = [*command, str(build.resolve() / "07_train_and_evaluate")]
    with tempfile.TemporaryDirectory() as work:
        for _ in range(1 if options.launcher else 2):
            out, err = run(program, arguments, cwd=work)
            result = re.fullmatch(before + r"step 300 accuracy ([0-9.]+)\n", out)
            expect(result and float(result[1]) > 0.8, "one line: an accuracy above 0.8 at step 300", out, err)
        expect(pathlib.Path(work, "digits", "model-300.safetensors").is_file(), "the checkpoint is kept", out, err)


def check_process_groups(build, options):
    for ranks in (2, 4) if options.launcher else (2,):
        command = [*launched(options.launcher, ranks, None), str(build.resolve() / "08_process_groups")]
        out, err = run(command[0], command[1:])
        before = "[0] " if options.launcher else ""
        total, last = ranks * (ranks - 1) // 2, ranks - 1
        expected = [f"sum [{total}. {ranks}.]", f"{ranks} tensors, the last is [{last}. 1.]",
                    f"of rank 0 [0. 1.], of the rank before [{last}. 1.]", *(f"rank {i}" for i in range(ranks))]
        expect(out.splitlines() == [before + line for line in expected], f"rank 0 prints {expected}", out, err)


def check_twins(build, options):
    """The programs on one device run, and a job of one worker writes the same weights as its twin."""
    with tempfile.TemporaryDirectory() as work, tempfile.TemporaryDirectory() as other:
        run(build.resolve() / "09_one_device", cwd=work)
        expect(len(weights_of(pathlib.Path(work, "ddp.safetensors"))) == 4, "09_one_device saves four tensors")
        run(build.resolve() / "10_one_device", cwd=work)
        run(build.resolve() / "12_one_device", cwd=work)
        run(build.resolve() / "06_one_device", cwd=work)
        run(build.resolve() / "06_multi_worker", cwd=other)
        expect(weights_of(pathlib.Path(work, "multi_worker.safetensors"))
               == weights_of(pathlib.Path(other, "multi_worker.safetensors")),
               "one worker gives the result of a single process")
        make_digits(pathlib.Path(work))
        out, err = run(build.resolve() / "04_one_device", [work], cwd=work)
        expect(float(out.splitlines()[-1]) > 0.97, "accuracy above 0.97 after one epoch", out, err)


def launched(launcher, ranks, work):
    """The launcher's command line for this many ranks, without the program."""
    if launcher is None:
        return []
    if launcher == "torchrun":
        # Older versions fail under newer Pythons without explicit log options.
        return ["torchrun", "--standalone", "-r", "1", "-t", "1", "--log_dir", work / "log",
                "--nproc_per_node", str(ranks), "--no_python"]
    return [launcher, "run", "-n", str(ranks), "--"]


def write_penguins(path, count=344):
    """A table like that of the palmerpenguins data set: its means and deviations, text, and missing fields."""
    species = {"Adelie": (38.8, 18.3, 190, 3700, ("Torgersen", "Biscoe", "Dream")),
               "Chinstrap": (48.8, 18.4, 196, 3730, ("Dream",)), "Gentoo": (47.5, 15.0, 217, 5080, ("Biscoe",))}
    generator = random.Random(0)
    lines = ["species,island,bill_length_mm,bill_depth_mm,flipper_length_mm,body_mass_g,sex"]
    for _ in range(count):
        name = generator.choices(list(species), (152, 68, 124))[0]
        *means, islands = species[name]
        sex = generator.choice(("male", "female"))
        sign = 1 if sex == "male" else -1
        numbers = [mean + sign * shift + generator.gauss(0, deviation) for mean, shift, deviation
                   in zip(means, (1.7, 0.7, 3.5, 300), (1.6, 0.7, 5, 250))]
        fields = [name, generator.choice(islands), *(f"{number:.1f}" for number in numbers[:2]),
                  *(f"{number:.0f}" for number in numbers[2:]), sex]
        if generator.random() < 0.03:
            fields[generator.randrange(2, 7)] = "NA"
        lines.append(",".join(fields))
    path.write_text("\n".join(lines) + "\n")


def check_csv(build, options):
    with tempfile.TemporaryDirectory() as work:
        path = pathlib.Path(work) / "penguins.csv"
        write_penguins(path)
        out, err = run(build / "19_csv", [path])
    lines = out.splitlines()
    expect(lines[0] == "species: string, 0 missing", "the first column is text", out, err)
    expect(lines[2].startswith("bill_length_mm: float64, ") and not lines[2].endswith(" 0 missing"),
           "the third column has numbers, and missing ones", out, err)
    expect(float(lines[-1].removeprefix("accuracy ")) > 0.96, "the accuracy is above 0.96", out, err)


def write_cifar10(path, count=400):
    """Images of CIFAR-10's format, each class of one colour with noise."""
    generator = random.Random(0)
    with open(path, "wb") as file:
        for i in range(count):
            label = i % 10
            planes = [(label * shift) % 10 * 22 for shift in (1, 3, 7)]
            file.write(bytes([label, *(plane + generator.randrange(40) for plane in planes for _ in range(1024))]))


def check_image_folder(build, options):
    with tempfile.TemporaryDirectory() as work:
        data = pathlib.Path(work) / "cifar10"
        data.mkdir()
        write_cifar10(data / "data_batch_1.bin")
        out, err = run(build / "20_image_folder", [pathlib.Path(work) / "folder", "8"],
                       environment={"TANDEM_DATA": work})
        untrained, _ = run(build / "20_image_folder", [pathlib.Path(work) / "folder", "0"])
    lines = out.splitlines()
    expect(untrained.splitlines()[-1].startswith("accuracy 0"), "0 epochs end well", untrained, "")
    expect(lines[0] == "320 images for training, 80 for validation, 10 classes", "the parts have their sizes", out, err)
    expect(float(lines[-1].removeprefix("accuracy ")) > 0.5, "the accuracy is above 0.5", out, err)


def check_custom_operation(build, options):
    out, err = run(build / "21_custom_operation")
    expect(out.splitlines() == ["[1.   0.5  2.25]", "gradients agree with differences: 1", "learned: 1", "[4. 2.]"],
           "the operation has values, gradients and a graph", out, err)


def check_ddp(build, options):
    if options.launcher == "torchrun" and not shutil.which("torchrun"):
        if "torchrun" in os.environ.get("TANDEM_CI_EXPECTS", "").split(","):
            sys.exit("torchrun is missing, and TANDEM_CI_EXPECTS says that this machine has it")
        print("torchrun is not on this machine")
        sys.exit(SKIPPED)
    for ranks in (2, 4) if options.launcher else (2,):
        weights = []
        for _ in range(2):
            with tempfile.TemporaryDirectory() as work:
                work = pathlib.Path(work)
                command = [*launched(options.launcher, ranks, work), build / "09_ddp"]
                out, err = run(command[0], command[1:], cwd=work)
                if options.launcher != "torchrun":  # which writes output to files
                    accuracy = re.search(r"accuracy ([0-9.]+)$", out)
                    expect(accuracy and float(accuracy[1]) > 0.7, "rank 0 prints an accuracy above 0.7", out, err)
                # 784*128 + 128, and 128*10 + 10.
                check_safetensors(work / "ddp.safetensors", 4, 101770, out, err)
                weights.append((work / "ddp.safetensors").read_bytes())
        expect(weights[0] == weights[1], f"two runs of {ranks} ranks give the same bits")


CHECKS = {"devices": check_devices, "session_towers": check_session_towers, "memory": check_memory,
          "virtual_gpus": check_virtual_gpus, "data_parallel": check_data_parallel,
          "mixed_precision": check_mixed_precision, "csv": check_csv, "image_folder": check_image_folder,
          "custom_operation": check_custom_operation, "fit_mirrored": check_fit_mirrored,
          "custom_loop": check_custom_loop, "multi_worker": check_multi_worker,
          "train_and_evaluate": check_train_and_evaluate, "process_groups": check_process_groups, "ddp": check_ddp,
          "parameter_server": check_parameter_server, "tpu": check_tpu, "twins": check_twins}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("program", choices=list(CHECKS))
    parser.add_argument("--emulated-gpus", type=int, default=0)
    parser.add_argument("--fake-gpus", type=int, default=0)
    parser.add_argument("--fake-cuda")
    parser.add_argument("--mnist", type=pathlib.Path)
    parser.add_argument("--synthetic", action="store_true")
    parser.add_argument("--plugin")
    parser.add_argument("--launcher")
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    CHECKS[options.program](options.build, options)


if __name__ == "__main__":
    main()
