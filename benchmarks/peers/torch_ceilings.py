"""The counterpart of ceilings.cc in eager PyTorch: products, memory passes and a chain. Prints a JSON line."""

import argparse
import json
import statistics
import time

import torch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=8192)
    parser.add_argument("--elements", type=int, default=2**29)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="gpu")
    parser.add_argument("--dtype", choices=["float32", "tf32", "bfloat16"], default="float32")
    parser.add_argument("--seconds", type=float, default=0.5)
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = options.dtype == "tf32"
    device = "cuda" if options.device == "gpu" else "cpu"
    dtype = torch.bfloat16 if options.dtype == "bfloat16" else torch.float32

    def ms(work):
        def repeat(count):
            begin = time.perf_counter()
            for _ in range(count):
                result = work()
            result[0, 0].item()
            return (time.perf_counter() - begin) * 1e3

        repeat(4)
        stretches = []
        while sum(stretches) < options.seconds * 1e3:
            stretches.append(repeat(4))
        return statistics.median(stretches) / 4

    a, b = (torch.rand(options.size, options.size, device=device).mul_(2).sub_(1).to(dtype) for _ in range(2))
    product = ms(lambda: a @ b)
    x = torch.rand(options.elements >> 20, 1 << 20, device=device).sub_(0.5).to(dtype)
    passed = ms(lambda: torch.relu(x))
    chained = ms(lambda: torch.nn.functional.gelu(x * 0.5 + 1.0) * x)
    print(json.dumps({"program": "pytorch", "version": torch.__version__, "dtype": options.dtype,
                      "flops": 2 * options.size**3 / product * 1e3,
                      "bytes": 2 * x.numel() * x.element_size() / passed * 1e3,
                      "chain_bytes": 2 * x.numel() * x.element_size() / chained * 1e3}))


if __name__ == "__main__":
    main()
