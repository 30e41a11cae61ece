"""Adapters of the functions that have PyTorch's layouts and arguments in Tandem, too."""

import torch
import torch.nn.functional as F

from check_operations.cases import Case, channels_first, channels_last, is_tensor, need, number, two
from check_operations.functions import adapts, arguments

ACTIVATIONS = {"celu": {"alpha": 1.0}, "glu": {"dim": -1}, "hardshrink": {"lambd": 0.5}, "hardsigmoid": {}, "hardswish": {},
               "logsigmoid": {}, "mish": {}, "softplus": {"beta": 1, "threshold": 20}, "softshrink": {"lambd": 0.5},
               "softsign": {}, "tanhshrink": {}, "threshold": {"threshold": None, "value": None}}


@adapts(*(f"nn.functional.{name}" for name in ACTIVATIONS))
def activation(op, s):
    name = op.name.split(".")[-1]
    values = arguments(s, **ACTIVATIONS[name], inplace=False)[:-1]
    given = dict(zip(ACTIVATIONS[name], values))
    return Case(f"F.{name}", [s.input], lambda x: op(x, *values), **{key: number(value) for key, value in given.items()})


@adapts("nn.functional.prelu")
def prelu(op, s):
    return Case("F.prelu", [s.input, *arguments(s, weight=None)], op)


@adapts("nn.functional.rrelu")
def rrelu(op, s):
    lower, upper, training, _ = arguments(s, lower=1 / 8, upper=1 / 3, training=False, inplace=False)
    need(not training, "random slopes")
    return Case("F.rrelu", [s.input], lambda x: op(x, lower, upper), lower=number(lower), upper=number(upper))


@adapts("nn.functional.softmin")
def softmin(op, s):
    dim, dtype = arguments(s, dim=None, dtype=None)
    need(dtype is None, "dtype")
    return Case("F.softmin", [s.input], lambda x: op(x, dim), dim=dim)


@adapts("nn.functional.max_pool2d")
def max_pool2d(op, s):
    size, stride, padding, dilation, ceil, indices = arguments(
        s, kernel_size=None, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False)
    return Case("F.max_pool2d", [s.input], lambda x: op(x, size, stride, padding, dilation, ceil, indices), size=two(size),
                stride=two(size if stride in (None, [], ()) else stride), padding=two(padding), dilation=two(dilation), ceil=bool(ceil),
                indices=bool(indices))


@adapts("nn.functional.avg_pool2d")
def avg_pool2d(op, s):
    size, stride, padding, ceil, counted, divisor = arguments(
        s, kernel_size=None, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None)
    return Case("F.avg_pool2d", [s.input], lambda x: op(x, size, stride, padding, ceil, counted, divisor), size=two(size),
                stride=two(size if stride in (None, [], ()) else stride), padding=two(padding), ceil=bool(ceil), counted=bool(counted),
                **({} if divisor is None else {"divisor": divisor}))


@adapts("nn.functional.adaptive_avg_pool2d", "nn.functional.adaptive_max_pool2d")
def adaptive_pool2d(op, s):
    size, indices = arguments(s, output_size=None, return_indices=False)
    need(not indices and None not in two(size), "indices, a size that stays")
    return Case("F." + op.name.split(".")[-1], [s.input], lambda x: op(x, size), size=two(size))


@adapts("nn.functional.conv_transpose2d")
def conv_transpose2d(op, s):
    weight, bias, stride, padding, more, groups, dilation = arguments(
        s, weight=None, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1)
    need(s.input.dim() == 4, "images without a batch axis")
    inputs = [channels_last(s.input), weight.permute(2, 3, 1, 0)] + ([] if bias is None else [bias])
    return Case("conv2d_transpose", inputs, lambda x, w, *b: channels_last(op(
        channels_first(x), w.permute(3, 2, 0, 1), b[0] if b else None, stride, padding, more, groups, dilation)),
                strides=two(stride), pad=two(padding), more=two(more), groups=groups, dilations=two(dilation))


def sizes_for(op, value, axes):
    """A number for one axis, a list for several."""
    value = [value] * axes if isinstance(value, int) else list(value)
    value = value * axes if len(value) == 1 else value
    return value[0] if axes == 1 else value


def axes_of(op):
    return int(op.name[-2])


@adapts("nn.functional.max_pool1d", "nn.functional.max_pool3d")
def max_pool(op, s):
    size, stride, padding, dilation, ceil, indices = arguments(
        s, kernel_size=None, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False)
    named = {"size": size, "stride": size if stride in (None, [], ()) else stride, "padding": padding, "dilation": dilation}
    return Case("F." + op.name.split(".")[-1], [s.input], lambda x: op(x, size, stride, padding, dilation, ceil, indices),
                ceil=bool(ceil), indices=bool(indices), **{key: sizes_for(op, value, axes_of(op)) for key, value in named.items()})


@adapts("nn.functional.avg_pool1d", "nn.functional.avg_pool3d")
def avg_pool(op, s):
    size, stride, padding, ceil, counted, divisor = arguments(
        s, kernel_size=None, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None)
    named = {"size": size, "stride": size if stride in (None, [], ()) else stride, "padding": padding}
    return Case("F." + op.name.split(".")[-1], [s.input], lambda x: op(x, *s.args, **s.kwargs), ceil=bool(ceil),
                counted=bool(counted), **({} if divisor is None else {"divisor": divisor}),
                **{key: sizes_for(op, value, axes_of(op)) for key, value in named.items()})


@adapts("nn.functional.adaptive_avg_pool1d", "nn.functional.adaptive_max_pool1d", "nn.functional.adaptive_avg_pool3d",
        "nn.functional.adaptive_max_pool3d")
def adaptive_pool(op, s):
    size, indices = arguments(s, output_size=None, return_indices=False)
    size = sizes_for(op, size, axes_of(op))
    need(not indices and None not in (size if isinstance(size, list) else [size]), "indices, a size that stays")
    return Case("F." + op.name.split(".")[-1], [s.input], lambda x: op(x, size), size=size)


@adapts(*(f"nn.functional.max_unpool{axes}d{kind}" for axes in (1, 2, 3) for kind in ("", ".grad")))
def max_unpool(op, s):
    indices, size, stride, padding, output = arguments(
        s, indices=None, kernel_size=None, stride=None, padding=0, output_size=None)
    named = {"size": size, "stride": size if stride in (None, [], ()) else stride, "padding": padding}
    return Case("F." + op.name.split(".")[-1], [s.input, indices], lambda x, i: op(x, i, size, stride, padding, output),
                output=list(output or []), **{key: sizes_for(op, value, axes_of(op)) for key, value in named.items()})


@adapts("nn.functional.grid_sample")
def grid_sample(op, s):
    grid, mode, padding, align = arguments(s, grid=None, mode="bilinear", padding_mode="zeros", align_corners=False)
    return Case("F.grid_sample", [s.input, grid], lambda x, g: op(x, g, mode, padding, align), mode=mode,
                padding_mode=padding, align_corners=bool(align))


@adapts("nn.functional.embedding_bag")
def embedding_bag(op, s):
    indices, offsets, max_norm, _, scaled, mode, sparse, factors, last, padding = arguments(
        s, input=None, offsets=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, mode="mean", sparse=False,
        per_sample_weights=None, include_last_offset=False, padding_idx=None)
    need(max_norm is None and not scaled and not sparse, "max_norm, scale_grad_by_freq, sparse")
    inputs = [indices, s.input, *([] if offsets is None else [offsets]), *([] if factors is None else [factors])]

    def reference(i, w, *rest):
        rest = list(rest)
        begins = rest.pop(0) if offsets is not None else None
        return F.embedding_bag(i, w, begins, mode=mode, per_sample_weights=rest[0] if rest else None,
                               include_last_offset=last, padding_idx=padding)
    return Case("F.embedding_bag", inputs, reference, mode=mode, last=bool(last), offsets=offsets is not None,
                **({} if padding is None else {"padding": padding}))


@adapts("index_put")
def index_put(op, s):
    indices, values, accumulate = arguments(s, indices=None, values=None, accumulate=False)
    need(all(i is not None and i.dtype in (torch.int32, torch.int64) for i in indices), "masks, open axes")
    return Case("index_put", [s.input, values, *indices], lambda x, v, *i: op(x, i, v, accumulate),
                accumulate=bool(accumulate))


@adapts("nn.functional.conv1d", "nn.functional.conv3d", "nn.functional.conv_transpose1d",
        "nn.functional.conv_transpose3d")
def conv(op, s):
    transposed = "transpose" in op.name
    weight, bias, stride, padding, *rest = arguments(
        s, weight=None, bias=None, stride=1, padding=0,
        **({"output_padding": 0, "groups": 1, "dilation": 1} if transposed else {"dilation": 1, "groups": 1}))
    more, groups, dilation = rest if transposed else (0, rest[1], rest[0])
    need(s.input.dim() == axes_of(op) + 2 and not isinstance(padding, str), "no batch axis, a name as padding")
    named = {"stride": stride, "padding": padding, "dilation": dilation, **({"output_padding": more} if transposed else {})}
    return Case("F." + op.name.split(".")[-1], [s.input, weight] + ([] if bias is None else [bias]),
                lambda x, w, *b: op(x, w, b[0] if b else None, stride, padding, *rest), groups=groups,
                **{key: sizes_for(op, value, axes_of(op)) for key, value in named.items()})


@adapts("nn.functional.pixel_shuffle", "nn.functional.pixel_unshuffle", "nn.functional.channel_shuffle")
def shuffle(op, s):
    (factor,) = s.args or s.kwargs.values()
    return Case("F." + op.name.split(".")[-1], [s.input], lambda x: op(x, factor), factor=factor)


@adapts("nn.functional.pad.reflect", "nn.functional.pad.replicate", "nn.functional.pad.replicate_negative",
        "nn.functional.pad.circular")
def pad(op, s):
    sides, mode, value = arguments(s, pad=None, mode=None, value=None)
    mode = mode or op.variant_test_name.split("_")[0]
    return Case("F.pad", [s.input], lambda x: F.pad(x, sides, mode=mode), sides=list(sides), mode=mode, value=0)


@adapts("nn.functional.cosine_similarity")
def cosine_similarity(op, s):
    other, dim, eps = arguments(s, x2=None, dim=1, eps=1e-8)
    return Case("F.cosine_similarity", [s.input, other], lambda x, y: op(x, y, dim, eps), dim=dim, eps=number(eps))


@adapts("nn.functional.pairwise_distance")
def pairwise_distance(op, s):
    other, p, eps, keepdim = arguments(s, x2=None, p=2.0, eps=1e-6, keepdim=False)
    need(p > 0, "an order below 0")
    return Case("F.pairwise_distance", [s.input, other], lambda x, y: op(x, y, p, eps, keepdim), p=number(p),
                eps=number(eps), keepdim=bool(keepdim))


@adapts("nn.functional.group_norm", "native_group_norm")
def group_norm(op, s):
    if op.name == "native_group_norm":
        weight, bias, n, channels, rest, groups, eps = s.args
        reference = lambda x, *p: F.group_norm(x, groups, *p, eps=eps)  # noqa: E731
    else:
        groups, weight, bias, eps = arguments(s, num_groups=None, weight=None, bias=None, eps=1e-5)
        reference = lambda x, *p: op(x, groups, *p, eps=eps)  # noqa: E731
    need((weight is None) == (bias is None), "a weight alone")
    return Case("F.group_norm", [s.input] + ([] if weight is None else [weight, bias]), reference, groups=groups,
                eps=number(eps))


@adapts("nn.functional.instance_norm")
def instance_norm(op, s):
    mean, var, weight, bias, use, _, eps = arguments(s, running_mean=None, running_var=None, weight=None, bias=None,
                                                     use_input_stats=True, momentum=0.1, eps=1e-5)
    need(use and (weight is None) == (bias is None), "running moments, a weight alone")
    return Case("F.instance_norm", [s.input] + ([] if weight is None else [weight, bias]), lambda x, *p: F.instance_norm(
        x, None, None, *p, eps=eps), eps=number(eps))


@adapts("nn.functional.rms_norm")
def rms_norm(op, s):
    shape, weight, eps = arguments(s, normalized_shape=None, weight=None, eps=None)
    return Case("F.rms_norm", [s.input] + ([] if weight is None else [weight]), lambda x, *w: op(x, shape, *w, eps=eps),
                shape=list(shape), **({} if eps is None else {"eps": number(eps)}))


@adapts("nn.functional.local_response_norm")
def local_response_norm(op, s):
    values = arguments(s, size=None, alpha=1e-4, beta=0.75, k=1.0)
    size, alpha, beta, k = values
    return Case("F.local_response_norm", [s.input], lambda x: op(x, *values), size=size, alpha=number(alpha),
                beta=number(beta), k=number(k))


@adapts(*(f"nn.functional.interpolate.{mode}" for mode in "area bicubic bilinear linear nearest nearest-exact trilinear".split()),
        "nn.functional.upsample_bilinear", "nn.functional.upsample_nearest")
def interpolate(op, s):
    mode = {"upsample_bilinear": "bilinear", "upsample_nearest": "nearest"}.get(op.name.split(".")[-1])
    size, factor, given, align, again, anti = arguments(s, size=None, scale_factor=None, mode=mode or "nearest", align_corners=None,
                                                        recompute_scale_factor=None, antialias=False)
    need(not anti and 3 <= s.input.dim() <= 5 and (s.input.is_floating_point()), "antialiasing, integers")
    align = op.name.endswith("upsample_bilinear") or bool(align)
    listed = lambda x: [] if x is None else [x] if isinstance(x, (int, float)) else list(x)  # noqa: E731
    return Case("F.interpolate", [s.input], lambda x: op(x, *s.args, **s.kwargs), size=listed(size),
                factor=[float(x) for x in listed(factor)], mode=mode or given, align=align, again=bool(again))


@adapts("nn.functional.unfold")
def unfold(op, s):
    values = arguments(s, kernel_size=None, dilation=1, padding=0, stride=1)
    size, dilation, padding, stride = values
    return Case("F.unfold", [s.input], lambda x: op(x, *values), size=two(size), dilation=two(dilation), padding=two(padding),
                stride=two(stride))


@adapts("nn.functional.bilinear")
def bilinear(op, s):
    other, weight, bias = arguments(s, input2=None, weight=None, bias=None)
    return Case("F.bilinear", [s.input, other, weight] + ([] if bias is None else [bias]), op)


@adapts("nn.functional.pdist")
def pdist(op, s):
    (p,) = arguments(s, p=2.0)
    need(p > 0 and s.input.shape[0] > 1, "an order below 0, no pairs")
    return Case("F.pdist", [s.input], lambda x: op(x, p), p=number(p))


# Losses: the arguments that are tensors, and the others with their defaults.
LOSSES = {"gaussian_nll_loss": (["target", "var"], {"full": False, "eps": 1e-6}),
          "poisson_nll_loss": (["target"], {"log_input": True, "full": False, "eps": 1e-8}),
          "cosine_embedding_loss": (["x2", "target"], {"margin": 0}),
          "margin_ranking_loss": (["input2", "target"], {"margin": 0}),
          "hinge_embedding_loss": (["target"], {"margin": 1.0}), "soft_margin_loss": (["target"], {}),
          "triplet_margin_loss": (["positive", "negative"], {"margin": 1.0, "p": 2.0, "eps": 1e-6, "swap": False}),
          "multi_margin_loss": (["target"], {"p": 1, "margin": 1.0, "weight": None}),
          "multilabel_soft_margin_loss": (["target"], {"weight": None}),
          "smooth_l1_loss": (["target"], {"beta": 1.0}),
          "nll_loss": (["target"], {"weight": None, "ignore_index": -100})}


@adapts(*(f"nn.functional.{name}" for name in LOSSES))
def loss(op, s):
    name = op.name.split(".")[-1]
    tensors, options = LOSSES[name]
    need(len(s.args) <= len(tensors), "further arguments")
    values = {**options, "reduction": "mean", "size_average": None, "reduce": None, **dict(zip(tensors, s.args)), **s.kwargs}
    need(values.pop("size_average") is None and values.pop("reduce") is None, "old names of reductions")
    inputs = [s.input, *(values.pop(tensor) for tensor in tensors)]
    need(all(is_tensor(x) for x in inputs), "a number as target")
    weight = values.pop("weight", None)
    need(s.input.is_floating_point(), "integers")
    need(name not in ("margin_ranking_loss", "triplet_margin_loss", "hinge_embedding_loss") or len({x.shape for x in inputs}) == 1, "broadcasting")
    need(name != "gaussian_nll_loss" or inputs[1].shape == s.input.shape, "broadcasting")
    need(name != "multi_margin_loss" or s.input.dim() == 2, "one example")

    def reference(*x):
        further = {} if weight is None else {"weight": x[-1]}
        result = op.op(*x[:len(inputs)], **values, **further)
        return result.float() if result.dtype in (torch.float16, torch.bfloat16) else result  # Tandem's losses are float32
    attributes = {key: value if isinstance(value, (str, bool)) else number(value) for key, value in values.items()}
    sources = [0, *(i for i, key in enumerate(tensors, 1) if key in ("x2", "input2", "positive", "negative", "var"))]
    return Case(f"F.{name}", inputs + ([] if weight is None else [weight]), reference, sources, **attributes)


@adapts("nn.functional.ctc_loss")
def ctc_loss(op, s):
    targets, inputs, lengths, blank, reduction, zero_infinity = arguments(
        s, targets=None, input_lengths=None, target_lengths=None, blank=0, reduction="mean", zero_infinity=False)
    need(targets.dim() == 2, "labels of all examples in a vector")
    few = [s.input[:, :4], *(torch.as_tensor(x)[:4] for x in (targets, inputs, lengths))]

    # PyTorch's gradient is that of log_probs only after log_softmax().
    def reference(x, *others):
        return op(x.log_softmax(-1), *others, blank=blank, reduction=reduction, zero_infinity=zero_infinity)
    return Case("F.ctc_loss", few, reference, blank=blank, reduction=reduction, zero_infinity=zero_infinity)


# ---- elementary functions, scans, products, positions ---------------------------------------------------------

@adapts("sinh", "cosh", "asinh", "acosh", "atanh", "exp2", "sinc", "trunc", "frac")
def elementary(op, s):
    need(s.input.is_floating_point() and not s.args and not s.kwargs, "integers, arguments")
    return Case(op.name, [s.input], op)


@adapts("hypot", "logaddexp", "logaddexp2", "xlogy", "fmod", "kron", "logical_xor")
def of_two(op, s):
    (other,) = arguments(s, other=None)
    need(is_tensor(other) and is_tensor(s.input), "a number")
    need(op.name in ("kron", "logical_xor") or s.input.is_floating_point(), "integers")
    need(op.name != "logical_xor" or s.input.dtype == other.dtype == torch.bool, "numbers as truth values")
    return Case(op.name, [s.input, other], op)


@adapts("logit")
def logit(op, s):
    (eps,) = arguments(s, eps=None)
    need(s.input.is_floating_point() and (eps is None or eps < 0.5), "integers, limits that cross")
    return Case("logit", [s.input], lambda x: op(x, eps), **({} if eps is None else {"eps": eps}))


@adapts("nan_to_num")
def nan_to_num(op, s):
    nan, posinf, neginf = arguments(s, nan=None, posinf=None, neginf=None)
    need(s.input.is_floating_point(), "integers")
    given = {"posinf": posinf, "neginf": neginf}
    return Case("nan_to_num", [s.input], lambda x: op(x, nan, posinf, neginf), nan=number(nan or 0),
                **{key: number(value) for key, value in given.items() if value is not None})


@adapts("lerp")
def lerp(op, s):
    other, weight = arguments(s, end=None, weight=None)
    need(is_tensor(weight), "a number as weight")
    return Case("lerp", [s.input, other, weight], op)


@adapts("addcmul", "addcdiv")
def addc(op, s):
    a, b, value = arguments(s, tensor1=None, tensor2=None, value=1)
    need(s.input.is_floating_point(), "integers")
    return Case(op.name, [s.input, a, b], lambda x, p, q: op(x, p, q, value=value), value=number(value))


@adapts("isclose")
def isclose(op, s):
    other, rtol, atol, equal_nan = arguments(s, other=None, rtol=1e-5, atol=1e-8, equal_nan=False)
    need(s.input.is_floating_point() and not equal_nan, "integers, equal_nan")
    return Case("isclose", [s.input, other], lambda x, y: op(x, y, rtol=rtol, atol=atol), rtol=number(rtol), atol=number(atol))


@adapts("cumprod", "cummax", "cummin", "logcumsumexp")
def scan(op, s):
    (dim,) = arguments(s, dim=0)
    need(s.input.is_floating_point() and s.input.dim() > 0, "integers, a scalar")
    return Case(op.name, [s.input], lambda x: op(x, dim), dim=dim)


@adapts("diff")
def diff(op, s):
    n, dim, before, after = arguments(s, n=1, dim=-1, prepend=None, append=None)
    need(before is None and after is None and s.input.dtype != torch.bool, "further elements, bools")
    return Case("diff", [s.input], lambda x: op(x, n, dim), n=n, dim=dim)


@adapts("tensordot")
def tensordot(op, s):
    other, dims = arguments(s, other=None, dims=2)
    need(s.input.is_floating_point(), "integers")
    a, b = ([*range(s.input.dim() - dims, s.input.dim())], [*range(dims)]) if isinstance(dims, int) else dims
    need([s.input.shape[i] for i in a] == [other.shape[i] for i in b], "sizes that broadcast")
    return Case("tensordot", [s.input, other], lambda x, y: op(x, y, dims=dims), a=list(a), b=list(b))


@adapts("linalg.cross")
def cross(op, s):
    other, dim = arguments(s, other=None, dim=-1)
    return Case("cross", [s.input, other], lambda x, y: op(x, y, dim=dim), dim=dim)


@adapts("cdist")
def cdist(op, s):
    other, p, _ = arguments(s, x2=None, p=2.0, compute_mode=None)
    need(p > 0 and s.input.numel() * other.numel() > 0, "an order below 0, no rows")
    return Case("cdist", [s.input, other], lambda x, y: op(x, y, p), p=number(p))


@adapts("diag_embed")
def diag_embed(op, s):
    offset, first, second = arguments(s, offset=0, dim1=-2, dim2=-1)
    need((first, second) == (-2, -1), "other axes")
    return Case("diag_embed", [s.input], lambda x: op(x, offset), offset=offset)


@adapts("repeat_interleave")
def repeat_interleave(op, s):
    repeats, dim = arguments(s, repeats=None, dim=None)
    need(isinstance(repeats, int) and dim is not None and s.input.dim() > 0, "a tensor of repeats, all elements")
    return Case("repeat_interleave", [s.input], lambda x: op(x, repeats, dim), repeats=repeats, dim=dim)


@adapts("searchsorted", "bucketize")
def searchsorted(op, s):
    other, out_int32, right, side, sorter = arguments(
        s, values=None, out_int32=False, right=False, side=None, sorter=None) if op.name == "searchsorted" else [
            *arguments(s, boundaries=None, out_int32=False, right=False), None, None]
    ordered, values = (s.input, other) if op.name == "searchsorted" else (other, s.input)
    need(is_tensor(values) and ordered.dim() == 1 and not out_int32 and sorter is None, "rows, int32, a sorter")
    need(ordered.dtype == values.dtype, "two dtypes")
    right = right or side == "right"
    return Case("searchsorted", [ordered, values], lambda o, v: torch.searchsorted(o, v, right=right), [], right=right)


@adapts("index_add")
def index_add(op, s):
    dim, index, source, alpha = arguments(s, dim=None, index=None, source=None, alpha=1)
    need(alpha == 1 and s.input.is_floating_point() and s.input.dim() > 0 and index.dim() == 1, "alpha, integers, scalars")
    return Case("index_add", [s.input, index, source], lambda x, i, y: op(x, dim, i, y), dim=dim)


@adapts("einsum")
def einsum(op, s):
    (equation,) = s.args
    need(all(x.is_floating_point() for x in s.input), "integers")
    return Case("einsum", s.input, lambda *x: op(list(x), equation), equation=equation)
