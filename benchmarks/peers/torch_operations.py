"""Operations of PyTorch, measured on request: the counterpart of benchmarks/operations.cc, which defines the cases and
their PyTorch expressions. Each line of the standard input is a request as JSON, with the case as operations.cc lists it;
each line of the output is the answer."""

import argparse
import functools
import json
import math
import statistics
import sys
import time

import torch
import torch.nn.functional as F

from torch_step import random_bits, random_uniform

SLOPE_STREAM = 100
LAYOUTS = {
    "plain": lambda x: x,
    "image": lambda x: x.permute(0, 3, 1, 2),
    "kernel": lambda x: x.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last),
    "depthwise": lambda x: x.permute(2, 3, 0, 1).contiguous(),
    "linear": lambda x: x.t().contiguous(),
    "heads": lambda x: x.transpose(1, 2),
}


@functools.lru_cache(maxsize=8)  # most cases have inputs of the same shapes
def random_values(stream, shape, values, limit):
    """As operation_cases.cc."""
    if values == "classes":
        return (random_bits(stream, math.prod(shape)) % limit).view(shape)
    if values == "bool":
        return random_uniform(stream, shape, 1.0) < 0
    if values == "signed":
        return random_uniform(stream, shape, math.sqrt(12))
    spread, middle = {"positive": (1.0, 1.0), "unit": (1.0, 0.5), "near_one": (2**-7, 1.0)}[values]
    return random_uniform(stream, shape, spread) + middle


class Prepared:
    """A case at one size and dtype."""

    def __init__(self, case, size, dtype):
        sized = case["sizes"][size]
        self.dtype = getattr(torch, dtype)
        self.inputs, self.sources = [], []
        for stream, spec in enumerate(sized["inputs"]):
            x = random_values(stream, tuple(spec["shape"]), spec["values"], spec["limit"]).detach()
            if x.is_floating_point() and not spec["wide"]:
                x = x.to(self.dtype)
            x = LAYOUTS[spec["layout"]](x)
            if spec["gradient"]:
                x.requires_grad_()
                self.sources.append(x)
            self.inputs.append(x)
        self.layout = sized["inputs"][0]["layout"] if sized["inputs"] else "plain"
        names = [chr(ord("a") + i) for i in range(len(self.inputs))]
        scope = {"torch": torch, "F": F, "shape": sized["shape"], "dtype": self.dtype}
        self.function = eval(f"lambda {', '.join(names)}: {case['torch']}", scope)
        self.has_backward = case["backward"] and bool(self.sources)

    def forward(self):
        return self.function(*self.inputs)

    def record(self):
        """Records a forward pass, which backward() can then follow any number of times."""
        self.result = self.forward()
        shape = self.result.shape
        if len(shape) == 4 and self.layout in ("image", "heads"):
            order = (0, 2, 3, 1) if self.layout == "image" else (0, 2, 1, 3)
            slope = LAYOUTS[self.layout](random_values(SLOPE_STREAM, tuple(shape[i] for i in order), "signed", 0))
        else:
            slope = random_values(SLOPE_STREAM, tuple(shape), "signed", 0)
        self.slope = slope.to(self.result.dtype)

    def backward(self):
        """Gradients that are views in another layout are copied, as PyTorch does when it accumulates them in `grad`."""
        gradients = torch.autograd.grad(self.result, self.sources, self.slope, retain_graph=True)
        return [gradient if gradient.stride() == source.stride() else torch.empty_like(source).copy_(gradient)
                for gradient, source in zip(gradients, self.sources)]


def sums(tensor):
    values = tensor.detach().double()
    return [values.sum().item(), values.abs().sum().item()]


def check(case):
    prepared = Prepared(case, "small", "float32")
    found = [sums(prepared.forward())]
    if prepared.has_backward:
        prepared.record()
        found += [sums(gradient) for gradient in prepared.backward()]
    return {"sums": found}


def time_calls(seconds, call):
    """As operations.cc: nanoseconds per call, the median of blocks of at least half a millisecond."""
    def block(count):
        start = time.perf_counter()
        for _ in range(count):
            call()
        return time.perf_counter() - start

    block(1)
    count = min(max(math.ceil(0.5e-3 / block(1)), 1), 100_000)
    block(max(1, count // 4))
    blocks, begin = [], time.perf_counter()
    while not blocks or time.perf_counter() - begin < seconds:
        blocks.append(block(count) / count)
    return statistics.median_high(blocks) * 1e9


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    torch.set_num_threads(parser.parse_args().threads)
    prepared, prepared_for = None, None
    for line in sys.stdin:
        asked = json.loads(line)
        case = asked["case"]
        try:
            if asked["request"] == "check":
                answer = check(case)
            else:
                wanted = (case["case"], asked["size"], asked["dtype"])
                if wanted != prepared_for:
                    prepared = None
                    prepared, prepared_for = Prepared(case, *wanted[1:]), wanted
                if asked["pass"] == "backward":
                    prepared.record()
                    answer = {"ns": time_calls(asked["seconds"], prepared.backward)}
                else:
                    with torch.no_grad():
                        answer = {"ns": time_calls(asked["seconds"], prepared.forward)}
        except (AttributeError, NotImplementedError, RuntimeError, TypeError) as error:
            # This PyTorch lacks the function, or a kernel for the dtype.
            answer = {"error": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
            prepared = prepared_for = None
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
