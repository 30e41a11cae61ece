"""One training step of a case in PyTorch, timed; prints a JSON line. scripts/bench runs it with PyTorch's
best settings: OpenBLAS's OpenMP flavour, tcmalloc, channels_last (docs/benchmarks.md). With RANK and WORLD_SIZE
set it is one process of a DistributedDataParallel over gloo, and takes turns as api_step.cc does.

The counterpart of train_step.cc: the same models, weights, data and options."""

import argparse
import contextlib
import copy
import json
import math
import os
import sys
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


def mlp(width):
    return nn.Sequential(nn.Linear(784, width), nn.ReLU(inplace=True), nn.Linear(width, width), nn.ReLU(inplace=True),
                         nn.Linear(width, 10))


class LinearAfterFlatten(nn.Linear):
    """A linear layer after Flatten, whose inputs are channels first."""

    channels = 64


def lenet():
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(inplace=True), nn.Conv2d(32, 64, 3), nn.ReLU(inplace=True),
                         nn.MaxPool2d(2), nn.Flatten(), LinearAfterFlatten(9216, 128), nn.ReLU(inplace=True),
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


def attend(query, key, value, causal):
    """Scaled dot-product attention. PyTorch 1 has no function for it."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(query, key, value, is_causal=causal)
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    if causal:
        scores = scores + torch.full(scores.shape[-2:], float("-inf"), device=scores.device).triu(1)
    return torch.softmax(scores, -1) @ value


class QueryKeyValue(nn.Linear):
    """Three projections as one product."""

    def __init__(self, width):
        super().__init__(width, 3 * width)


class CausalAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.inputs = QueryKeyValue(width)
        self.result = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.inputs(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = attend(*parts, causal=True)
        return self.result(mixed.transpose(1, 2).reshape(batch, length, width))


class TransformerBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = CausalAttention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.dense = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.dense(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self, blocks, width, heads, length, vocabulary):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.tokens(x) + self.positions.weight)))


class Recurrent(nn.Module):
    def __init__(self, make, width):
        super().__init__()
        self.layer = make(width, width, batch_first=True)
        self.dense = nn.Linear(width, 10)

    def forward(self, x):
        return self.dense(self.layer(x)[0][:, -1])


class Case:
    """As in cases.h."""

    def __init__(self, make, example, batch, classes=10, vocabulary=0, small=False):
        self.make, self.example, self.batch, self.classes, self.vocabulary = make, example, batch, classes, vocabulary
        self.small = small


def find_case(name, tiny):
    def decoder(*sizes):
        blocks, width, heads, length, vocabulary = (2, 32, 2, 16, 61) if tiny else sizes
        return Case(lambda: Transformer(blocks, width, heads, length, vocabulary), (length,), 4 if tiny else 16,
                    vocabulary, vocabulary)

    if name in ("mlp64", "mlp512"):
        return Case(lambda: mlp(32 if tiny else 512), (784,), int(name[3:]), small=True)
    if name == "lenet64":
        return Case(lenet, (1, 28, 28), 8 if tiny else 64, small=True)
    if name == "resnet20":
        return Case(resnet20, (3, 32, 32), 2 if tiny else 128)
    if name == "resnet50":
        return Case(resnet50, (3, 64, 64) if tiny else (3, 224, 224), 4 if tiny else 8, 1000)
    if name in ("lstm32", "gru32"):
        width = 16 if tiny else 256
        return Case(lambda: Recurrent(nn.GRU if name == "gru32" else nn.LSTM, width), (4 if tiny else 128, width),
                    4 if tiny else 32)
    if name == "transformer4":
        return decoder(4, 256, 4, 128, 1000)
    if name == "transformer12":
        return decoder(12, 768, 12, 512, 50304)
    sys.exit(f"torch_step: no case {name}")


# ---- the numbers of random_numbers.h --------------------------------------------------------------------------


def random_bits(stream, count):
    """Numbers 0 .. count - 1 of a stream, 24 bits each."""
    mask = 0xFFFFFFFF
    x = (torch.arange(count) * 0x9E3779B9 + stream * 0x85EBCA6B) & mask
    x ^= x >> 16
    x = (x * 0x7FEB352D) & mask
    x ^= x >> 15
    x = (x * 0x846CA68B) & mask
    return (x ^ (x >> 16)) >> 8


def random_uniform(stream, shape, length):
    return ((random_bits(stream, math.prod(shape)).float() * 2**-24 - 0.5) * length).view(shape)


def random_kernel(stream, shape):
    """`shape` is Tandem's: inputs first, outputs last."""
    return random_uniform(stream, shape, math.sqrt(12 / math.prod(shape[:-1])))


def set_random_weights(model):
    """Tandem's variables in its order: kernel and bias of a layer, gamma and beta."""
    stream = 0
    with torch.no_grad():
        for module in model.modules():
            own = list(module.parameters(recurse=False))
            if isinstance(module, QueryKeyValue):
                width = module.in_features
                kernels = [random_kernel(stream + 1 + 2 * i, (width, width)) for i in range(3)]
                module.weight.copy_(torch.cat(kernels, dim=1).t())
                nn.init.zeros_(module.bias)
                stream += 6
                continue
            if isinstance(module, nn.Linear):
                kernel = random_kernel(stream + 1, module.weight.t().shape)
                if isinstance(module, LinearAfterFlatten):
                    pixels = kernel.shape[0] // module.channels
                    kernel = kernel.view(pixels, module.channels, -1).transpose(0, 1).reshape(kernel.shape)
                module.weight.copy_(kernel.t())
            elif isinstance(module, nn.Conv2d):
                outputs, inputs, height, width = module.weight.shape
                kernel = random_kernel(stream + 1, (height, width, inputs, outputs))
                module.weight.copy_(kernel.permute(3, 2, 0, 1))
            elif isinstance(module, nn.Embedding):
                module.weight.copy_(random_uniform(stream + 1, module.weight.shape, 0.02 * math.sqrt(12)))
            if isinstance(module, (nn.Linear, nn.Conv2d)) and module.bias is not None:
                nn.init.zeros_(module.bias)
            stream += len(own)


def make_pool(case, batch, device):
    """Four batches. Images are generated channels last, as in Tandem, and keep that memory layout."""
    pool = []
    for i in range(4):
        stream = 100_000 + 2 * i
        shape = (batch, *case.example)
        if case.vocabulary:
            x = (random_bits(stream, math.prod(shape)) % case.vocabulary).view(shape)
        elif len(shape) == 4:
            n, channels, height, width = shape
            x = random_uniform(stream, (n, height, width, channels), math.sqrt(12)).permute(0, 3, 1, 2)
        else:
            x = random_uniform(stream, shape, math.sqrt(12))
        labels = shape if case.vocabulary else (batch,)
        y = (random_bits(stream + 1, math.prod(labels)) % case.classes).view(labels)
        pool.append((x.to(device), y.to(device)))
    return pool


# ---- other results --------------------------------------------------------------------------------------------


def least_work(model, step, x, y):
    """Returns the least (floating-point operations, bytes) of a step, or Nones if PyTorch cannot count operations.

    The operations are those of products, convolutions and attention, forward and backward. PyTorch counts causal
    attention as if all scores were needed. The bytes assume that all element-wise work is fused. Each layer's result is
    written once and read twice, and its gradient is written and read once. Weights, gradients and momentum are passed
    over seven times.
    """
    try:
        from torch.utils.flop_counter import FlopCounterMode
    except ImportError:
        return None, None
    passed = [7 * 4 * sum(weight.numel() for weight in model.parameters())]
    fused = (nn.ReLU, nn.GELU, nn.Flatten)
    hooks = [module.register_forward_hook(
        lambda module, inputs, result: passed.append(5 * result.numel() * result.element_size()))
        for module in model.modules() if not list(module.children()) and not isinstance(module, fused)]
    with FlopCounterMode(display=False) as counter:
        step(x, y)
    for hook in hooks:
        hook.remove()
    return counter.get_total_flops(), sum(passed)


def peak_mib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--steps", type=int, default=100, help="per measurement, with several processes")
    parser.add_argument("--cycles", type=int, default=5, help="measurements, with several processes")
    parser.add_argument("--batch", type=int, default=0, help="the case's unless given")
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--dtype", choices=["float32", "tf32", "bfloat16"], default="float32", help="bfloat16: autocast")
    parser.add_argument("--tiny", type=int, default=0, help="1: a small version of the model")
    parser.add_argument("--check", type=int, default=0, help="steps whose losses are printed, before any is timed")
    parser.add_argument("--serve", type=int, default=0, help="1: each line of the standard input asks for a measurement")
    parser.add_argument("--compile", action="store_true", help="the model through torch.compile (PyTorch 2)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    started = float(os.environ.get("TANDEM_BENCH_STARTED", "nan"))
    on_gpu = options.device == "gpu"
    device = torch.device("cuda" if on_gpu else "cpu")
    torch.backends.cudnn.benchmark = True  # the best of its algorithms
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options.dtype == "tf32"
    torch.ones(1, device=device) + torch.ones(1, device=device)
    startup_ms = (time.clock_gettime(time.CLOCK_MONOTONIC) - started) * 1e3

    case = find_case(options.case, options.tiny)
    model = case.make()
    set_random_weights(model)
    model = model.to(device)
    parameters = sum(weight.numel() for weight in model.parameters())
    pool = make_pool(case, options.batch or case.batch, device)
    if len(case.example) == 3:
        model = model.to(memory_format=torch.channels_last)
        pool = [(x.contiguous(memory_format=torch.channels_last), y) for x, y in pool]
    # PyTorch 2.4 and later update all parameters in one pass when asked to.
    fused = {"fused": True} if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 4) else {}

    def sgd(model):
        return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, **fused)

    optimizer = sgd(model)
    plain = model
    if options.compile:
        # With CUDA graphs where launching would take the longest.
        model = torch.compile(model, mode="reduce-overhead" if on_gpu and case.small else "default")
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        apart = copy.deepcopy(model)
        optimizer_apart = sgd(apart)
        torch.distributed.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)

    def precision():
        return torch.autocast(device.type, torch.bfloat16) if options.dtype == "bfloat16" else contextlib.nullcontext()

    def step(x, y, model=model, optimizer=optimizer):
        optimizer.zero_grad(set_to_none=True)
        with precision():
            logits = model(x)
            loss = F.cross_entropy(logits.view(-1, case.classes), y.view(-1))
        loss.backward()
        optimizer.step()
        return loss

    def time_steps(count, enough, step=step):
        """As report.h: milliseconds per step in the median of blocks of `count` steps."""
        blocks, begin = [], time.perf_counter()
        while True:
            block = time.perf_counter()
            for i in range(count):
                loss = step(*pool[i % len(pool)])
            loss.item()
            now = time.perf_counter()
            blocks.append((now - block) / count * 1e3)
            if enough(now - begin, len(blocks) * count):
                return sorted(blocks)[len(blocks) // 2]

    def time_for(seconds, count):
        return time_steps(count, lambda taken, _: taken >= seconds)

    def take_turns(local, together):
        """As report.h."""
        rank = torch.distributed.get_rank()
        block = min(max(options.steps // 4, 1), 4)

        def take(step):
            time_steps(block, lambda *_: True, step)
            return time_steps(block, lambda _, steps: steps >= options.steps, step)

        turns = {"alone_ms": [], "apart_ms": [], "together_ms": []}
        take(local)
        take(together)
        for _ in range(options.cycles):
            for turn in range(ranks):
                if turn == rank:
                    turns["alone_ms"].append(take(local))
                time_steps(1, lambda *_: True, together)
            turns["apart_ms"].append(take(local))
            turns["together_ms"].append(take(together))
        print(json.dumps({"program": "pytorch", "version": torch.__version__, "case": options.case,
                          "threads": options.threads, "rank": rank, **turns}), flush=True)

    def report(ms):
        print(json.dumps({
            "program": "compiled" if options.compile else "pytorch", "version": torch.__version__,
            "case": options.case, "device": options.device, "dtype": options.dtype, "threads": options.threads,
            "replicas": 1, "parameters": parameters, "losses": losses, "ms": ms, "peak_mib": peak_mib(),
            "device_peak_mib": torch.cuda.max_memory_allocated() / 2**20 if on_gpu else None,
            "startup_ms": None if startup_ms != startup_ms else startup_ms, **work}), flush=True)

    if ranks > 1:
        take_turns(lambda x, y: step(x, y, apart, optimizer_apart), step)
        torch.distributed.destroy_process_group()
        return
    losses = [step(*pool[i % len(pool)]).item() for i in range(options.check)]
    work = {}
    if options.check and not options.compile:
        flops, passed = least_work(plain, step, *pool[0])
        work = {"flops": flops, "bytes": passed}
    if on_gpu:  # excludes the memory for timing algorithms
        torch.cuda.reset_peak_memory_stats()
    ms = time_for(min(1.0, options.seconds / 2), 4)
    # On a GPU a block is long, so that the wait at its end does not matter.
    count = 4 * (min(max(math.ceil(20 / (4 * ms)), 1), 1000) if on_gpu else 1)
    if not options.serve:
        report(time_for(options.seconds, count))
        return
    report(None)
    for _ in sys.stdin:
        report(time_for(options.seconds, count))


if __name__ == "__main__":
    main()
