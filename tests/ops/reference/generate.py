#!/usr/bin/env python3
"""Writes cases.json: results and gradients of operations, computed by PyTorch in float64.

    python3 tests/ops/reference/generate.py    (Debian: python3-torch; 1.13 or later)

reference_test.cc runs each case in every floating dtype. A case is one line below: an operation of
OPERATIONS, its inputs, its attributes. Inputs are not stored: both sides make them from a seed.
Their values are odd multiples of 1/32, which every dtype holds exactly, and on which no operation
has a kink.
"""
import json
import math
import os

import numpy as np
import torch
import torch.nn.functional as F

STEP = 1 / 32


def words(seed, count):
    """The numbers of std::mt19937(seed)."""
    bits = np.random.MT19937()
    bits._legacy_seeding(seed)
    return bits.random_raw(count).astype(np.uint64) if count else np.zeros(0, np.uint64)


class Input:
    """kind: 'signed' in (-2, 2), 'positive' in (0, 4), 'unit' in (0, 1), 'distinct' (at most 128
    elements, no two alike), 'index' in [0, limit), 'mask' of 0 and 1."""

    def __init__(self, shape, kind="signed", limit=0):
        self.shape, self.kind, self.limit = list(shape), kind, limit

    def spec(self):
        spec = {"shape": self.shape}
        if self.kind != "signed":
            spec["kind"] = self.kind
        if self.limit:
            spec["limit"] = self.limit
        return spec

    def values(self, seed):
        count = math.prod(self.shape)
        random_words = words(seed, count)
        if self.kind == "index":
            return torch.tensor((random_words % self.limit).astype(np.int64)).reshape(self.shape)
        if self.kind == "mask":
            return torch.tensor(random_words % 4 != 0).reshape(self.shape)
        if self.kind == "distinct":
            # A Fisher-Yates shuffle of the first `count` values.
            chosen = list(range(128))
            for i in range(min(count, 127)):
                j = i + int(random_words[i]) % (128 - i)
                chosen[i], chosen[j] = chosen[j], chosen[i]
            odd = 2 * np.array(chosen[:count], dtype=np.float64) - 127
        else:
            k = (random_words % 64).astype(np.float64)
            odd = {"signed": 2 * k - 63, "positive": 2 * k + 1, "unit": (2 * k + 1) / 4}[self.kind]
        return torch.tensor(odd * STEP).reshape(self.shape)


def signed(*shape):
    return Input(shape)


def positive(*shape):
    return Input(shape, "positive")


def unit(*shape):
    return Input(shape, "unit")


def distinct(*shape):
    return Input(shape, "distinct")


def index(limit, *shape):
    return Input(shape, "index", limit)


def mask(*shape):
    return Input(shape, "mask")


# --- the operations, channels last, as Tandem has them ---


def same_padding(size, window, stride, dilation):
    result = -(-size // stride)
    total = max(0, (result - 1) * stride + (window - 1) * dilation + 1 - size)
    return total // 2, total - total // 2


def padded(x, window, a, value=0.0):
    """[n, c, h, w] with the borders of a['padding']."""
    if a.get("padding") != "same":
        return x
    top, bottom = same_padding(x.shape[2], window[0], a["strides"][0], a["dilations"][0])
    left, right = same_padding(x.shape[3], window[1], a["strides"][1], a["dilations"][1])
    return F.pad(x, (left, right, top, bottom), value=value)


def defaults(a, window=None):
    return {"strides": window or [1, 1], "dilations": [1, 1], "groups": 1, **a}


def conv2d(a, x, kernel, bias=None):
    a = defaults(a)
    y = F.conv2d(padded(x.permute(0, 3, 1, 2), kernel.shape[:2], a), kernel.permute(3, 2, 0, 1),
                 bias, stride=a["strides"], dilation=a["dilations"], groups=a["groups"])
    return y.permute(0, 2, 3, 1)


def depthwise_conv2d(a, x, kernel, bias=None):
    kh, kw, channels, multiplier = kernel.shape
    return conv2d({**a, "groups": channels}, x, kernel.reshape(kh, kw, 1, channels * multiplier),
                  bias)


def max_pool2d(a, x):
    a = defaults(a, a["window"])
    x = padded(x.permute(0, 3, 1, 2), a["window"], a, -math.inf)
    return F.max_pool2d(x, a["window"], a["strides"]).permute(0, 2, 3, 1)


def avg_pool2d(a, x):
    a = defaults(a, a["window"])
    x = x.permute(0, 3, 1, 2)

    def total(t):
        return F.avg_pool2d(padded(t, a["window"], a), a["window"], a["strides"], divisor_override=1)

    return (total(x) / total(torch.ones_like(x))).permute(0, 2, 3, 1)


def batch_norm_training(a, x, gamma, beta):
    axes = list(range(x.dim() - 1))
    variance, mean = x.var(axes, unbiased=False), x.mean(axes)
    return (x - mean) / torch.sqrt(variance + a["epsilon"]) * gamma + beta


def attention(a, query, key, value, mask=None):
    group = query.shape[2] // key.shape[2]
    q = query.permute(0, 2, 1, 3)
    k = key.repeat_interleave(group, 2).permute(0, 2, 1, 3)
    v = value.repeat_interleave(group, 2).permute(0, 2, 1, 3)
    scores = q @ k.transpose(-1, -2) * a.get("scale", 1 / math.sqrt(query.shape[3]))
    if mask is not None and mask.dtype != torch.bool:
        scores = scores + mask
    elif mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    if a.get("causal"):
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, -math.inf)
    return (torch.softmax(scores, -1) @ v).permute(0, 2, 1, 3)


def reduction(function):
    def run(a, x):
        axes = a.get("axes", list(range(x.dim())))
        return function(x, axes, a.get("keepdims", False))

    return run


def prod(x, axes, keepdims):
    for axis in sorted((axis % x.dim() for axis in axes), reverse=True):
        x = x.prod(axis, keepdim=keepdims)
    return x


def gathered(a, params, indices):
    axis = a.get("axis", 0) % params.dim()
    shape = params.shape[:axis] + indices.shape + params.shape[axis + 1:]
    return params.index_select(axis, indices.reshape(-1)).reshape(shape)


def matmul(a, x, y):
    if a.get("transpose_a"):
        x = x.transpose(-1, -2)
    if a.get("transpose_b"):
        y = y.transpose(-1, -2)
    return x @ y


OPERATIONS = {
    "conv2d": conv2d, "depthwise_conv2d": depthwise_conv2d,
    "max_pool2d": max_pool2d, "avg_pool2d": avg_pool2d,
    "relu": lambda a, x: F.relu(x), "relu6": lambda a, x: F.relu6(x),
    "leaky_relu": lambda a, x: F.leaky_relu(x, a["alpha"]), "elu": lambda a, x: F.elu(x, a["alpha"]),
    "selu": lambda a, x: F.selu(x), "gelu": lambda a, x: F.gelu(x),
    "gelu_tanh": lambda a, x: F.gelu(x, approximate="tanh"), "swish": lambda a, x: F.silu(x),
    "softplus": lambda a, x: F.softplus(x), "tanh": lambda a, x: torch.tanh(x),
    "sigmoid": lambda a, x: torch.sigmoid(x), "exp": lambda a, x: torch.exp(x),
    "expm1": lambda a, x: torch.expm1(x), "log": lambda a, x: torch.log(x),
    "log1p": lambda a, x: torch.log1p(x), "sqrt": lambda a, x: torch.sqrt(x),
    "rsqrt": lambda a, x: torch.rsqrt(x), "square": lambda a, x: torch.square(x),
    "reciprocal": lambda a, x: torch.reciprocal(x), "sin": lambda a, x: torch.sin(x),
    "cos": lambda a, x: torch.cos(x), "erf": lambda a, x: torch.erf(x),
    "abs": lambda a, x: torch.abs(x), "sign": lambda a, x: torch.sign(x),
    "negative": lambda a, x: -x, "pow_number": lambda a, x: x ** a["exponent"],
    "clip": lambda a, x: torch.clamp(x, a["low"], a["high"]),
    "softmax": lambda a, x: torch.softmax(x, a["axis"]),
    "log_softmax": lambda a, x: torch.log_softmax(x, a["axis"]),
    "softmax_cross_entropy": lambda a, labels, x: -(labels * torch.log_softmax(x, -1)).sum(-1),
    "sparse_softmax_cross_entropy": lambda a, labels, x: -torch.log_softmax(x, -1).gather(
        -1, labels.unsqueeze(-1)).squeeze(-1),
    "sigmoid_cross_entropy": lambda a, labels, x: F.binary_cross_entropy_with_logits(
        x, labels, reduction="none"),
    "batch_norm_training": batch_norm_training,
    "batch_norm_inference": lambda a, x, gamma, beta, mean, variance:
        (x - mean) / torch.sqrt(variance + a["epsilon"]) * gamma + beta,
    "layer_norm": lambda a, x, gamma, beta: F.layer_norm(x, x.shape[-1:], gamma, beta, a["epsilon"]),
    "attention": attention, "matmul": matmul,
    "add": lambda a, x, y: x + y, "subtract": lambda a, x, y: x - y,
    "multiply": lambda a, x, y: x * y, "divide": lambda a, x, y: x / y,
    "pow": lambda a, x, y: x ** y, "maximum": lambda a, x, y: torch.maximum(x, y),
    "minimum": lambda a, x, y: torch.minimum(x, y),
    "squared_difference": lambda a, x, y: (x - y) ** 2,
    "floor_mod": lambda a, x, y: torch.remainder(x, y),
    "where": lambda a, condition, x, y: torch.where(condition, x, y),
    "reduce_sum": reduction(lambda x, axes, keep: x.sum(axes, keepdim=keep)),
    "reduce_mean": reduction(lambda x, axes, keep: x.mean(axes, keepdim=keep)),
    "reduce_prod": reduction(prod),
    "reduce_max": reduction(lambda x, axes, keep: x.amax(axes, keepdim=keep)),
    "reduce_min": reduction(lambda x, axes, keep: x.amin(axes, keepdim=keep)),
    "reduce_variance": reduction(lambda x, axes, keep: x.var(axes, unbiased=False, keepdim=keep)),
    "reduce_std": reduction(lambda x, axes, keep: x.std(axes, unbiased=False, keepdim=keep)),
    "reduce_logsumexp": reduction(lambda x, axes, keep: x.logsumexp(axes, keepdim=keep)),
    "norm": reduction(lambda x, axes, keep: torch.linalg.vector_norm(x, 2, axes, keep)),
    "cumsum": lambda a, x: torch.cumsum(x, a["axis"]),
    "reshape": lambda a, x: x.reshape(a["shape"]), "transpose": lambda a, x: x.permute(a["axes"]),
    "broadcast_to": lambda a, x: x.expand(a["shape"]), "tile": lambda a, x: x.repeat(a["multiples"]),
    "reverse": lambda a, x: x.flip(a["axes"]), "concat": lambda a, *x: torch.cat(x, a["axis"]),
    "stack": lambda a, *x: torch.stack(x, a["axis"]),
    "slice": lambda a, x: x[tuple(slice(b, b + s) for b, s in zip(a["begin"], a["size"]))],
    "pad": lambda a, x: F.pad(x, [n for pair in reversed(a["paddings"]) for n in pair],
                              value=a["value"]),
    "gather": gathered,
    "split": lambda a, x: torch.split(x, a["sizes"], a["axis"])[a["part"]],
}

# Units of the dtype's precision by which results may be off, where more than the usual.
UNITS = {"exp": 16, "pow": 64, "batch_norm_training": 64, "reduce_prod": 128, "reciprocal": 64,
         "rsqrt": 64, "log": 64, "divide": 64, "attention": 24, "floor_mod": 32}

CASES = []


def case(operation, inputs, **attrs):
    CASES.append((operation, inputs, attrs))


def add_convolutions():
    for padding in ("valid", "same"):
        for strides in ([1, 1], [2, 2], [2, 1]):
            for bias in (False, True):
                case("conv2d", [signed(2, 6, 5, 3), signed(3, 3, 3, 4)] + [signed(4)] * bias,
                     strides=strides, padding=padding)
                case("depthwise_conv2d", [signed(2, 5, 6, 3), signed(3, 2, 3, 2)] +
                     [signed(6)] * bias, strides=strides, padding=padding)
        for dilations in ([2, 2], [1, 3]):
            case("conv2d", [signed(1, 8, 9, 2), signed(3, 3, 2, 3)], dilations=dilations,
                 padding=padding)
            case("depthwise_conv2d", [signed(1, 8, 9, 2), signed(3, 3, 2, 1)], dilations=dilations,
                 padding=padding)
        for groups in (2, 4):
            case("conv2d", [signed(2, 5, 5, 4), signed(3, 3, 4 // groups, 8), signed(8)],
                 groups=groups, padding=padding)
        case("conv2d", [signed(3, 4, 4, 5), signed(1, 1, 5, 2)], padding=padding)
        case("conv2d", [signed(1, 7, 7, 1), signed(5, 4, 1, 2)], strides=[3, 2], padding=padding)
        for window, strides in (([2, 2], [2, 2]), ([3, 3], [1, 1]), ([3, 2], [2, 3])):
            case("max_pool2d", [distinct(1, 7, 6, 3)], window=window, strides=strides,
                 padding=padding)
            case("avg_pool2d", [signed(2, 7, 6, 3)], window=window, strides=strides,
                 padding=padding)


def add_functions():
    for name in ("relu", "relu6", "selu", "gelu", "gelu_tanh", "swish", "softplus", "tanh",
                 "sigmoid", "exp", "expm1", "square", "sin", "cos", "erf", "abs", "sign",
                 "negative"):
        case(name, [signed(5, 9)])
    for name in ("log", "log1p", "sqrt", "rsqrt", "reciprocal"):
        case(name, [positive(4, 8)])
    for alpha in (0.0, 0.25, 1.0):
        case("leaky_relu", [signed(24)], alpha=alpha)
        case("elu", [signed(24)], alpha=alpha)
    for exponent in (-1.0, 0.0, 0.5, 2.0, 3.0, 1.5):
        case("pow_number", [positive(20)], exponent=exponent)
    case("clip", [signed(30)], low=-0.5, high=1.0)


def add_normalisations():
    for axis in (0, 1, 2, -1):
        case("softmax", [signed(3, 4, 5)], axis=axis)
        case("log_softmax", [signed(3, 4, 5)], axis=axis)
    case("softmax", [signed(2, 70)], axis=-1)
    for shape in ([4], [2, 3]):
        case("sparse_softmax_cross_entropy", [index(6, *shape), signed(*shape, 6)])
        case("softmax_cross_entropy", [unit(*shape, 5), signed(*shape, 5)])
        case("sigmoid_cross_entropy", [unit(*shape, 3), signed(*shape, 3)])
    for shape in ([8, 3], [2, 3, 4, 2], [5, 3, 4]):
        for epsilon in (1e-3, 0.25):
            c = shape[-1]
            case("batch_norm_training", [signed(*shape), signed(c), signed(c)], epsilon=epsilon)
            case("batch_norm_inference", [signed(*shape), signed(c), signed(c), signed(c),
                                          positive(c)], epsilon=epsilon)
            case("layer_norm", [signed(*shape), signed(c), signed(c)], epsilon=epsilon)
    case("layer_norm", [signed(3, 33), signed(33), signed(33)], epsilon=1e-5)


def add_attention():
    for heads, kv_heads in ((1, 1), (2, 2), (4, 2), (3, 1)):
        for causal in (False, True):
            qkv = [signed(2, 3, heads, 4), signed(2, 3, kv_heads, 4), signed(2, 3, kv_heads, 2)]
            case("attention", qkv, causal=causal)
    qkv = [signed(2, 4, 2, 3), signed(2, 5, 2, 3), signed(2, 5, 2, 4)]
    case("attention", qkv)
    case("attention", qkv, scale=0.25)
    for shape in ([2, 2, 4, 5], [1, 1, 4, 5], [2, 1, 1, 5]):
        case("attention", qkv + [signed(*shape)])
    case("attention", [signed(1, 4, 2, 3), signed(1, 4, 1, 3), signed(1, 4, 1, 3),
                       signed(1, 1, 4, 4)], causal=True)
    case("attention", [signed(2, 6, 2, 3), signed(2, 7, 2, 3), signed(2, 7, 2, 3),
                       mask(2, 1, 6, 7)])


def add_matmul():
    for a, b in (([3, 4], [4, 5]), ([1, 1], [1, 1]), ([7, 1], [1, 6]), ([2, 3, 4], [4, 5]),
                 ([2, 3, 4], [2, 4, 5]), ([3, 4], [2, 4, 5]), ([2, 1, 3, 4], [5, 4, 2]),
                 ([2, 0], [0, 3]), ([0, 4], [4, 3]), ([0, 2, 4], [4, 3]), ([2, 3, 0], [2, 0, 2]),
                 ([17, 33], [33, 9])):
        swap = lambda shape: shape[:-2] + [shape[-1], shape[-2]]
        case("matmul", [signed(*a), signed(*b)])
        case("matmul", [signed(*swap(a)), signed(*b)], transpose_a=True)
        case("matmul", [signed(*a), signed(*swap(b))], transpose_b=True)
        case("matmul", [signed(*swap(a)), signed(*swap(b))], transpose_a=True, transpose_b=True)


def add_binaries():
    shapes = (([3, 4], [3, 4]), ([3, 4], [4]), ([4], [3, 4]), ([3, 1], [1, 4]), ([], [5]),
              ([2, 3, 4], [3, 1]), ([2, 1, 4], [3, 1]), ([0, 3], [3]), ([1], [1]), ([2, 3], []))
    for a, b in shapes:
        for name in ("add", "subtract", "multiply", "squared_difference"):
            case(name, [signed(*a), signed(*b)])
        case("divide", [signed(*a), positive(*b)])
        case("pow", [positive(*a), signed(*b)])
        case("where", [mask(*a), signed(*a), signed(*b)])
    for name in ("maximum", "minimum"):
        for a, b in shapes:
            case(name, [Input(a, "distinct"), unit(*b)])
    case("floor_mod", [signed(5, 6), positive(6)])


def add_reductions():
    for axes in (None, [0], [1], [2], [-1], [0, 2], [0, 1], [1, 2]):
        for keepdims in (False, True):
            attrs = {"keepdims": keepdims} if axes is None else {"axes": axes, "keepdims": keepdims}
            for name in ("reduce_sum", "reduce_mean", "reduce_variance", "reduce_std",
                         "reduce_logsumexp", "norm"):
                case(name, [signed(3, 4, 5)], **attrs)
            for name in ("reduce_max", "reduce_min"):
                case(name, [distinct(3, 4, 5)], **attrs)
            case("reduce_prod", [unit(2, 3, 2)], **attrs)
    for axis in (0, 1, -1):
        case("cumsum", [signed(3, 4, 2)], axis=axis)


def add_arrays():
    case("reshape", [signed(3, 4)], shape=[2, 6])
    for axes in ([1, 0, 2], [2, 1, 0], [0, 2, 1], [1, 2, 0]):
        case("transpose", [signed(2, 3, 4)], axes=axes)
    case("broadcast_to", [signed(3, 1)], shape=[2, 3, 4])
    for multiples in ([2, 1], [1, 3], [2, 2]):
        case("tile", [signed(2, 3)], multiples=multiples)
    for axes in ([0], [1], [0, 2]):
        case("reverse", [signed(2, 3, 4)], axes=axes)
    for axis in (0, 1, -1):
        case("concat", [signed(2, 3), signed(2, 3), signed(2, 3)], axis=axis)
        case("stack", [signed(2, 3), signed(2, 3)], axis=axis)
        case("gather", [signed(3, 4), index(3, 5)], axis=axis)
    case("gather", [signed(4, 2, 3), index(4, 2, 3)], axis=0)
    case("slice", [signed(4, 5)], begin=[1, 0], size=[2, 4])
    case("slice", [signed(3, 2, 4)], begin=[0, 1, 2], size=[3, 1, 2])
    case("pad", [signed(2, 3)], paddings=[[1, 0], [2, 1]], value=0.0)
    case("pad", [signed(2, 3)], paddings=[[0, 2], [1, 0]], value=1.5)
    for part in (0, 1, 2):
        case("split", [signed(6, 2)], sizes=[1, 3, 2], axis=0, part=part)


def numbers(tensor):
    return [float("%.12g" % value) for value in tensor.detach().reshape(-1).tolist()]


def result_of(seed, operation, inputs, attrs):
    tensors = [each.values(seed + i) for i, each in enumerate(inputs)]
    sources = [t.requires_grad_() for t in tensors if t.dtype == torch.float64]
    y = OPERATIONS[operation](attrs, *tensors)
    weights = Input(y.shape, "positive").values(seed + 9)
    grads = torch.autograd.grad(y, sources, weights, allow_unused=True)
    return {"operation": operation, "seed": seed, "inputs": [each.spec() for each in inputs],
            **({"attrs": attrs} if attrs else {}),
            **({"units": UNITS[operation]} if operation in UNITS else {}),
            "shape": list(y.shape), "values": numbers(y),
            "gradients": [numbers(torch.zeros_like(s) if g is None else g)
                          for s, g in zip(sources, grads)]}


def main():
    for add in (add_convolutions, add_functions, add_normalisations, add_attention, add_matmul,
                add_binaries, add_reductions, add_arrays):
        add()
    lines = [json.dumps(result_of(10 * (i + 1), *each), separators=(",", ":"))
             for i, each in enumerate(CASES)]
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases.json")
    with open(path, "w") as file:
        file.write("[\n" + ",\n".join(lines) + "\n]\n")
    print(len(lines), "cases,", os.path.getsize(path), "bytes")


if __name__ == "__main__":
    main()
