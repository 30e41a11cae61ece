"""One training step of a case in PyTorch, timed; prints a JSON line. scripts/bench runs it with PyTorch's
best settings: OpenBLAS's OpenMP flavour, tcmalloc, channels_last (docs/benchmarks.md). With RANK and WORLD_SIZE
set it is one process of a DistributedDataParallel over gloo, which takes --steps steps."""

import argparse
import contextlib
import json
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)), inplace=True)))
        return F.relu(y + (self.shortcut(x) if self.shortcut else x), inplace=True)


def resnet20():
    layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
    inputs = 16
    for outputs in (16, 32, 64):
        for block in range(3):
            layers.append(Block(inputs, outputs, 2 if block == 0 and outputs != 16 else 1))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def mlp():
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(inplace=True), nn.Linear(512, 512), nn.ReLU(inplace=True),
                         nn.Linear(512, 10))


def lenet():
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(inplace=True), nn.Conv2d(32, 64, 3), nn.ReLU(inplace=True),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(inplace=True),
                         nn.Linear(128, 10))


class Bottleneck(nn.Module):
    def __init__(self, inputs, filters, stride, project):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, filters, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(filters)
        self.conv3 = nn.Conv2d(filters, 4 * filters, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * filters)
        self.shortcut = None
        if project:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, 4 * filters, 1, stride, bias=False),
                                          nn.BatchNorm2d(4 * filters))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        return F.relu(y + (self.shortcut(x) if self.shortcut else x), inplace=True)


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    inputs = 64
    for filters, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            layers.append(Bottleneck(inputs, filters, 2 if block == 0 and filters != 64 else 1, block == 0))
            inputs = 4 * filters
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


CASES = {  # name: (model, shape of an example, batch, classes)
    "mlp64": (mlp, (784,), 64, 10),
    "mlp512": (mlp, (784,), 512, 10),
    "lenet64": (lenet, (1, 28, 28), 64, 10),
    "resnet20": (resnet20, (3, 32, 32), 128, 10),
    "resnet50": (resnet50, (3, 224, 224), 8, 1000),
}


def peak_mib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, help="the case's unless given")
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="bfloat16: autocast")
    parser.add_argument("--compile", action="store_true", help="the model through torch.compile (PyTorch 2)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    started = float(os.environ.get("TANDEM_BENCH_STARTED", "nan"))
    device = torch.device("cuda" if options.device == "gpu" else "cpu")
    torch.backends.cudnn.benchmark = True  # the best of its algorithms
    torch.ones(1, device=device) + torch.ones(1, device=device)
    startup_ms = (time.clock_gettime(time.CLOCK_MONOTONIC) - started) * 1e3

    make, shape, batch, classes = CASES[options.case]
    batch = options.batch or batch
    model = make().to(device)
    pool = [(torch.randn(batch, *shape, device=device), torch.randint(classes, (batch,), device=device))
            for _ in range(4)]
    if len(shape) == 3:
        model = model.to(memory_format=torch.channels_last)
        pool = [(x.contiguous(memory_format=torch.channels_last), y) for x, y in pool]
    # PyTorch 2.4 and later update all parameters in one pass when asked to.
    fused = {"fused": True} if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 4) else {}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, **fused)
    if options.compile:
        model = torch.compile(model)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        torch.distributed.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)

    def precision():
        return torch.autocast(device.type, torch.bfloat16) if options.dtype == "bfloat16" else contextlib.nullcontext()

    def run(seconds, least=0):
        steps, begin = 0, time.perf_counter()
        while True:
            for x, y in pool:
                optimizer.zero_grad(set_to_none=True)
                with precision():
                    loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
            loss.item()
            steps += len(pool)
            elapsed = time.perf_counter() - begin
            if elapsed >= seconds and steps >= least:
                return elapsed / steps * 1e3

    if ranks > 1:  # every process takes the same steps
        run(0, options.steps // 2)
        ms = run(0, options.steps)
    else:
        run(min(1.0, options.seconds / 2))
        ms = run(options.seconds)
    if int(os.environ.get("RANK", "0")) == 0:
        print(json.dumps({"program": "compiled" if options.compile else "pytorch", "version": torch.__version__, "case": options.case,
                          "device": options.device, "dtype": options.dtype, "threads": options.threads, "replicas": ranks, "ms": ms,
                          "peak_mib": peak_mib(), "startup_ms": None if startup_ms != startup_ms else startup_ms}))
    if ranks > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
