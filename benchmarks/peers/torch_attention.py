"""A case of benchmarks/attention.cc in PyTorch, timed; prints a JSON line."""

import argparse
import json
import re
import statistics
import time

import torch

from torch_step import attend


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    kind, *sizes = re.fullmatch(r"([a-z]+)-(\d+)x(\d+)x(\d+)x(\d+)", options.case).groups()
    batch, heads, positions, depth = map(int, sizes)
    device = torch.device("cuda" if options.device == "gpu" else "cpu")

    def make():  # the layout after the projections: positions before heads
        return torch.randn(batch, positions, heads, depth, device=device).transpose(1, 2)

    inputs = [make().requires_grad_(kind != "forward") for _ in range(3)]
    slope = make()

    def run(seconds):  # milliseconds per call, the median of blocks of four
        blocks, begin = [], time.perf_counter()
        while True:
            start = time.perf_counter()
            for _ in range(4):
                result = attend(*inputs, kind == "causal")
                if kind != "forward":
                    result = torch.autograd.grad(result, inputs, slope)[0]
            result.flatten()[0].item()
            end = time.perf_counter()
            blocks.append((end - start) / 4 * 1e3)
            if end - begin >= seconds:
                return statistics.median_high(blocks)

    run(min(1.0, options.seconds / 2))
    print(json.dumps({"program": "pytorch", "version": torch.__version__, "case": options.case, "device": options.device,
                      "threads": options.threads, "replicas": 1, "ms": run(options.seconds)}))


if __name__ == "__main__":
    main()
