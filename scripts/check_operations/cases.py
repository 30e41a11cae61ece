"""A case: a function of Tandem, its arguments, and the PyTorch function that gives what is expected."""

import torch
import torch.nn.functional as F

NAMES = {torch.float32: "float32", torch.float64: "float64", torch.float16: "float16", torch.bfloat16: "bfloat16",
         torch.int64: "int64", torch.int32: "int32", torch.uint8: "uint8", torch.bool: "bool"}
MAX_RANK = 8


class Unmapped(Exception):
    """Tandem's function does not have an argument of this sample."""


class Case:
    """`reference` is a function of `inputs`, which have Tandem's order and layout. `sources` are the inputs to
    differentiate with respect to: the floating ones unless given."""

    def __init__(self, function, inputs, reference, sources=None, **attributes):
        self.function, self.reference, self.attributes = function, reference, attributes
        self.inputs = [x.detach().contiguous() for x in inputs]
        need(all(x.dtype in NAMES and x.dim() <= MAX_RANK for x in self.inputs), "dtype or rank of an input")
        self.sources = [i for i, x in enumerate(self.inputs) if x.is_floating_point()] if sources is None else sources

    def __str__(self):
        inputs = ", ".join(f"{NAMES[x.dtype]}{list(x.shape)}" for x in self.inputs)
        return f"{self.function}({inputs}) {self.attributes}"


def need(condition, reason):
    if not condition:
        raise Unmapped(reason)


def is_tensor(x):
    return isinstance(x, torch.Tensor)


def number(x):
    """A number that JSON can hold."""
    need(isinstance(x, (bool, int, float)), "a number of another type")
    return str(x) if isinstance(x, float) and (x != x or abs(x) == float("inf")) else int(x) if isinstance(x, bool) else x


def two(value):
    value = [value] if isinstance(value, int) else list(value)
    return value * 2 if len(value) == 1 else value


def channels_last(x):
    return x.movedim(1, -1) if x.dim() > 1 else x


def channels_first(x):
    return x.movedim(-1, 1) if x.dim() > 1 else x


def convolution(x, weight, bias, strides, padding, dilations, groups, **more):
    """A convolution of images, whose padding is a word, or sizes (of which Tandem's layer or pad() takes `more`)."""
    need(x.dim() == 4, "images without a batch axis")
    inputs = [channels_last(x), weight.permute(2, 3, 1, 0)] + ([] if bias is None else [bias])
    return inputs, lambda x, w, *b: channels_last(F.conv2d(
        channels_first(x), w.permute(3, 2, 0, 1), b[0] if b else None, strides, padding, dilations, groups)), {
            "strides": two(strides), "dilations": two(dilations), "groups": groups,
            "padding": padding if isinstance(padding, str) else "valid", **more}
