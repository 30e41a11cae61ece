"""The functions of Tandem for PyTorch's operations: each adapter takes an operation of op_db and a sample of its
arguments, and returns a Case."""

import torch
import torch.nn.functional as F

from check_operations.cases import (Case, NAMES, channels_first, channels_last, convolution, is_tensor, need, number, two)

ADAPTERS = {}  # by PyTorch's name


def adapts(*names):
    def register(adapter):
        ADAPTERS.update(dict.fromkeys(names, adapter))
        return adapter
    return register


def name_of(op):
    return op.name + ("." + op.variant_test_name if op.variant_test_name else "")


def arguments(sample, **defaults):
    """The arguments after the first, in the order of `defaults`."""
    need(len(sample.args) <= len(defaults), "further arguments")
    need(set(sample.kwargs) <= set(defaults), "other arguments")
    return list({**defaults, **dict(zip(defaults, sample.args)), **sample.kwargs}.values())


# ---- element by element ---------------------------------------------------------------------------------------

UNARY = {**{name: name for name in "abs ceil cos exp expm1 floor log log1p reciprocal rsqrt sigmoid sign sin sqrt square "
            "tanh erf logical_not zeros_like ones_like round".split()},
         "neg": "negative", "isfinite": "is_finite", "isnan": "is_nan", "positive": "identity", "clone": "identity",
         "contiguous": "identity", "alias_copy": "identity", "nn.functional.relu": "relu",
         "nn.functional.relu6": "relu6", "nn.functional.selu": "selu", "nn.functional.silu": "swish"}
# PyTorch's reflected operations have the second operand on the left.
BINARY = {"add": "add", "sub": "subtract", "mul": "multiply", "true_divide": "divide", "div.no_rounding_mode": "divide",
          "div.floor_rounding": "floor_divide", "div.trunc_rounding": "divide", "floor_divide": "floor_divide",
          "remainder": "floor_mod", "pow": "pow", "maximum": "maximum", "minimum": "minimum", "max.binary": "maximum",
          "min.binary": "minimum", "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
          "ge": "greater_equal", "logical_and": "logical_and", "logical_or": "logical_or"}
REFLECTED = {"__radd__": "add", "__rmul__": "multiply", "__rsub__": "subtract", "__rdiv__": "divide", "__rpow__": "pow",
             "__rmod__": "floor_mod", "rsub": "subtract"}
CASTS = {"float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "int": "int32",
         "long": "int64", "byte": "uint8", "bool": "bool"}


@adapts(*UNARY)
def unary(op, s):
    need(not s.args and set(s.kwargs) <= {"inplace"}, "other arguments")
    return Case(UNARY[op.name], [s.input], op)


@adapts(*BINARY, *REFLECTED)
def binary(op, s):
    name, (other, alpha, rounding) = name_of(op), arguments(s, other=None, alpha=1, rounding_mode=None)
    need(alpha == 1 and (is_tensor(s.input) or is_tensor(other)), "a factor, two numbers")
    function, reflected = {**BINARY, **REFLECTED}[name], name in REFLECTED
    floating = any(x.is_floating_point() if is_tensor(x) else isinstance(x, float) for x in (s.input, other))
    need(function != "divide" or floating != (name == "div.trunc_rounding"), "integers divided as floats, or the reverse")
    rounding = {k: v for k, v in s.kwargs.items() if k == "rounding_mode"}
    a, b = (other, s.input) if reflected else (s.input, other)
    ordered = (lambda x, y: op(y, x, **rounding)) if reflected else (lambda x, y: op(x, y, **rounding))
    if is_tensor(a) and is_tensor(b):
        return Case(function, [a, b], ordered)
    if is_tensor(a):
        return Case(function, [a], lambda x: ordered(x, b), b=number(b))
    return Case(function, [b], lambda x: ordered(a, x), a=number(a))


@adapts("nn.functional.gelu")
def gelu(op, s):
    (how,) = arguments(s, approximate="none")
    need(how in ("none", "tanh"), "another approximation")
    return Case("gelu", [s.input], lambda x: op(x, approximate=how), approximate=how == "tanh")


@adapts("nn.functional.elu", "nn.functional.leaky_relu")
def with_alpha(op, s):
    alpha, _ = arguments(s, alpha=1.0, inplace=False) if op.name.endswith(".elu") else arguments(
        s, negative_slope=0.01, inplace=False)
    return Case(op.name.split(".")[-1], [s.input], lambda x: op(x, alpha), alpha=number(alpha))


@adapts("nn.functional.hardtanh", "clamp", "clamp_min", "clamp_max")
def clamp(op, s):
    if "hardtanh" in op.name:
        low, high, _ = arguments(s, min_val=-1.0, max_val=1.0, inplace=False)
    elif op.name == "clamp":
        low, high = arguments(s, min=None, max=None)
    else:
        (limit,) = arguments(s, **{op.name[6:]: None})
        low, high = (limit, None) if op.name == "clamp_min" else (None, limit)
    if low is None or high is None:
        function, limit = ("minimum", high) if low is None else ("maximum", low)
        key = "max" if low is None else "min"
        if is_tensor(limit):
            return Case(function, [s.input, limit], lambda x, y: torch.clamp(x, **{key: y}))
        return Case(function, [s.input], lambda x: torch.clamp(x, **{key: limit}), b=number(limit))
    need(not is_tensor(low) and not is_tensor(high), "tensors as limits")
    return Case("clip_by_value", [s.input], lambda x: op(x, low, high), low=number(low), high=number(high))


@adapts("where", "masked_fill")
def where(op, s):
    if op.name == "where":
        condition, other = arguments(s, condition=None, other=None)
        first = s.input
    else:
        condition, first = arguments(s, mask=None, value=None)
        other = s.input
    need(is_tensor(first) and is_tensor(other), "a number")
    return Case("where", [condition, first, other], torch.where)


@adapts(*CASTS)
def cast(op, s):
    return Case("cast", [s.input], op, dtype=CASTS[op.name])


# ---- reductions -----------------------------------------------------------------------------------------------

REDUCTIONS = {"sum": "sum", "mean": "mean", "prod": "prod", "amax": "max", "amin": "min", "all": "all", "any": "any",
              "logsumexp": "logsumexp", "max.reduction_no_dim": "max", "min.reduction_no_dim": "min",
              "max.reduction_with_dim": "max", "min.reduction_with_dim": "min"}
VARIANCES = {"var": "variance", "std": "std", "var_mean": "variance", "std_mean": "std"}


def axes(dim, keepdim):
    dim = [dim] if isinstance(dim, int) else dim
    need(dim is None or len(dim) > 0, "an empty list of axes")
    return {"keepdims": bool(keepdim), **({} if dim is None else {"axis": list(dim)})}


def like(x, result):
    """Tandem's sums of integers have their dtype, those of bools int64."""
    return result if x.is_floating_point() or torch.bool in (x.dtype, result.dtype) else result.to(x.dtype)


@adapts(*REDUCTIONS)
def reduction(op, s):
    dim, keepdim = arguments(s, dim=None, keepdim=False)
    chosen = {} if dim is None and not keepdim else {"dim": dim, "keepdim": keepdim}
    first = lambda result: result if is_tensor(result) else result[0]  # noqa: E731: without positions
    return Case("reduce_" + REDUCTIONS[name_of(op)], [s.input], lambda x: like(x, first(op(x, **chosen))),
                **axes(dim, keepdim))


@adapts(*VARIANCES, *(f"{name}.unbiased" for name in VARIANCES))
def variance(op, s):
    if len(s.args) == 1 and isinstance(s.args[0], bool):
        dim, unbiased, keepdim, correction = None, s.args[0], False, None
    else:
        dim, unbiased, keepdim, correction = arguments(s, dim=None, unbiased=None, keepdim=False, correction=None)
    need(unbiased is False or correction == 0, "variance of a sample")
    return Case("reduce_" + VARIANCES[op.name], [s.input],
                lambda x: (torch.std if "std" in op.name else torch.var)(x, dim, correction=0, keepdim=keepdim),
                **axes(dim, keepdim))


@adapts("norm", "norm.fro", "linalg.vector_norm", "linalg.norm", "linalg.norm.subgradients_at_zero")
def norm(op, s):
    order, dim, keepdim, dtype = arguments(s, **{"p" if op.name == "norm" else "ord": 2 if "vector" in op.name else None},
                                           dim=None, keepdim=False, dtype=None)
    vectors = op.name in ("linalg.vector_norm", "norm") or s.input.dim() == 1 or isinstance(dim, int)
    need(dtype is None and (order in (None, "fro") or (order == 2 and vectors)), "another order")
    return Case("norm", [s.input], lambda x: op(x, *s.args, **s.kwargs), **axes(dim, keepdim))


@adapts("argmax", "argmin")
def position(op, s):
    dim, keepdim = arguments(s, dim=None, keepdim=False)
    need(not keepdim, "keepdims")
    return Case(op.name, [s.input], lambda x: op(x, dim), [], **({} if dim is None else {"axis": dim}))


@adapts("cumsum")
def cumsum(op, s):
    (dim,) = arguments(s, dim=0)
    return Case("cumsum", [s.input], lambda x: like(x, op(x, dim)), axis=dim)


# ---- neural networks ------------------------------------------------------------------------------------------

@adapts("matmul", "mm", "bmm")
def matmul(op, s):
    return Case("matmul", [s.input, *arguments(s, other=None)], op)


@adapts("nn.functional.linear")
def linear(op, s):
    weight, bias = arguments(s, weight=None, bias=None)
    need(weight.dim() == 2, "a vector as weight")
    return Case("dense", [s.input, weight.t()] + ([] if bias is None else [bias]), lambda x, w, *b: op(x, w.t(), *b))


@adapts("softmax", "log_softmax")
def softmax(op, s):
    dim, dtype = arguments(s, dim=None, dtype=None)
    need(dtype is None, "dtype")
    return Case(op.name, [s.input], lambda x: op(x, dim), axis=dim)


def scale_and_shift(x, sizes, weight, bias):
    return [torch.ones(sizes, dtype=x.dtype) if weight is None else weight,
            torch.zeros(sizes, dtype=x.dtype) if bias is None else bias]


@adapts("nn.functional.layer_norm", "native_layer_norm")
def layer_norm(op, s):
    sizes, weight, bias, eps = arguments(s, normalized_shape=None, weight=None, bias=None, eps=1e-5)
    need(len(sizes) == 1, "several axes")
    return Case("layer_norm", [s.input, *scale_and_shift(s.input, sizes, weight, bias)],
                lambda x, w, b: F.layer_norm(x, sizes, w, b, eps), epsilon=number(eps))


@adapts("nn.functional.batch_norm", "native_batch_norm", "nn.functional.batch_norm.without_cudnn")
def batch_norm(op, s):
    x, further = s.input, {"training": False, "momentum": 0.1, "eps": 1e-5}
    if op.name == "native_batch_norm":
        weight, bias, mean, var, training, _, eps = arguments(s, weight=None, bias=None, mean=None, var=None, **further)
    else:
        mean, var, weight, bias, training, _, eps = arguments(
            s, running_mean=None, running_var=None, weight=None, bias=None, **further)
    need(training or mean is not None, "no moments")
    inputs = [channels_last(x), *scale_and_shift(x, x.shape[1], weight, bias)]
    if training:
        return Case("batch_norm_training", inputs, lambda x, w, b: channels_last(F.batch_norm(
            channels_first(x), None, None, w, b, True, 0.0, eps)), epsilon=number(eps))
    return Case("batch_norm_inference", [*inputs, mean, var], lambda x, w, b, m, v: channels_last(F.batch_norm(
        channels_first(x), m, v, w, b, False, 0.0, eps)), epsilon=number(eps))


@adapts("nn.functional.conv2d")
def conv2d(op, s):
    weight, bias, stride, padding, dilation, groups = arguments(s, weight=None, bias=None, stride=1, padding=0, dilation=1,
                                                               groups=1)
    inputs, reference, attributes = convolution(s.input, weight, bias, stride, padding, dilation, groups,
                                                **({} if isinstance(padding, str) else {"pad": two(padding)}))
    return Case("conv2d", inputs, reference, **attributes)


@adapts("nn.functional.embedding")
def embedding(op, s):
    index, padding, max_norm, _, scale, sparse = arguments(s, weight=None, padding_idx=None, max_norm=None, norm_type=2.0,
                                                           scale_grad_by_freq=False, sparse=False)
    need(padding is None and max_norm is None and not scale and not sparse, "padding_idx, max_norm, ...")
    return Case("embedding_lookup", [s.input, index], lambda w, i: F.embedding(i, w))


@adapts("nn.functional.one_hot")
def one_hot(op, s):
    (classes,) = arguments(s, num_classes=-1)
    depth = int(s.input.max()) + 1 if classes == -1 else classes
    return Case("one_hot", [s.input], lambda x: F.one_hot(x, classes), depth=depth)


@adapts("nn.functional.scaled_dot_product_attention")
def attention(op, s):
    key, value, mask, dropout, causal, scale, grouped = arguments(
        s, key=None, value=None, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False)
    need(dropout == 0 and s.input.dim() == 4, "dropout, rank other than 4")
    swap = lambda x: x.transpose(1, 2)  # noqa: E731: Tandem's heads are the third axis
    return Case("scaled_dot_product_attention", [swap(s.input), swap(key), swap(value)] + ([] if mask is None else [mask]),
                lambda q, k, v, *m: swap(op(swap(q), swap(k), swap(v), *(m or [None]), 0.0, causal, scale=scale,
                                            enable_gqa=grouped)),
                causal=bool(causal), **({} if scale is None else {"scale": scale}))


@adapts("nn.functional.cross_entropy")
def cross_entropy(op, s):
    target, weight, _, ignored, _, reduction, smoothing = arguments(
        s, target=None, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean",
        label_smoothing=0.0)
    need(weight is None and smoothing == 0, "weights of classes, smoothing")
    logits = channels_last(s.input)
    if target.is_floating_point():
        need(reduction != "mean", "a mean of positions")
        return Case("softmax_cross_entropy", [channels_last(target), logits], lambda t, x: op(
            channels_first(x), channels_first(t), reduction=reduction), reduction=reduction)
    need(not (target == ignored).any(), "ignored labels")
    return Case("sparse_softmax_cross_entropy", [target, logits], lambda t, x: op(
        channels_first(x), t, reduction=reduction), reduction=reduction)


LOSSES = {"binary_cross_entropy_with_logits": "sigmoid_cross_entropy", "binary_cross_entropy": "binary_crossentropy",
          "mse_loss": "mse", "l1_loss": "mae", "huber_loss": "huber"}


@adapts(*(f"nn.functional.{name}" for name in LOSSES))
def loss(op, s):
    name = op.name.split(".")[-1]
    values = {"size_average": None, "reduce": None, "reduction": "mean", "weight": None, "pos_weight": None, "delta": 1.0,
              **s.kwargs}
    need(len(s.args) == 1 and values["pos_weight"] is None, "further arguments, pos_weight")
    weight, further = values["weight"], {"delta": values["delta"]} if name == "huber_loss" else {}
    need(weight is None or name.startswith("binary"), "weights of elements")
    need(values["reduction"] in ("none", "mean", "sum"), "another reduction")
    how = {"reduction": values["reduction"]}
    return Case(LOSSES[name], [s.args[0], s.input] + ([] if weight is None else [weight]),
                lambda t, x, *w: op.op(x, t, **({"weight": w[0]} if w else {}), **how, **further), **how, **further)


@adapts("nn.functional.kl_div")
def kl_div(op, s):
    target, reduction, log_target = arguments(s, target=None, reduction="mean", log_target=False)
    need(reduction != "batchmean", "batchmean")
    return Case("kl_divergence", [target, s.input], lambda t, x: op(x, t, reduction=reduction, log_target=log_target),
                reduction=reduction, log_target=log_target)


# ---- arrays ---------------------------------------------------------------------------------------------------

def sizes_in(args):
    return [int(size) for size in (args[0] if len(args) == 1 and not isinstance(args[0], int) else args)]


@adapts("reshape", "view", "view_copy", "reshape_as", "view_as", "flatten", "ravel", "unflatten", "atleast_1d",
        "atleast_2d", "atleast_3d")
def reshape(op, s):
    need(is_tensor(s.input) and not any(isinstance(a, torch.dtype) for a in s.args), "a list, a dtype")
    named = op.name in ("reshape", "view", "view_copy")
    return Case("reshape", [s.input], lambda x: op(x, *s.args, **s.kwargs),
                shape=sizes_in(s.args) if named else list(op(s.input, *s.args, **s.kwargs).shape))


@adapts("unsqueeze", "unsqueeze_copy")
def unsqueeze(op, s):
    (dim,) = arguments(s, dim=None)
    return Case("expand_dims", [s.input], lambda x: op(x, dim), axis=dim)


@adapts("squeeze", "squeeze.multiple", "squeeze_copy")
def squeeze(op, s):
    (dim,) = arguments(s, dim=None)
    chosen, rank = [] if dim is None else [dim] if isinstance(dim, int) else list(dim), s.input.dim()
    need(all(-rank <= d < rank and s.input.shape[d] == 1 for d in chosen), "an axis that stays")
    need(chosen or dim is None, "an empty list of axes")
    return Case("squeeze", [s.input], lambda x: op(x, *s.args, **s.kwargs), axes=chosen)


@adapts("permute", "permute_copy", "transpose", "transpose_copy", "t", "t_copy", "T", "H", "mT", "mH", "movedim")
def transpose(op, s):
    if op.name.startswith("permute"):
        permutation = sizes_in(s.args)
    else:  # distinct sizes show it
        sizes = torch.empty(range(1, s.input.dim() + 1))
        permutation = [size - 1 for size in op(sizes, *s.args, **s.kwargs).shape]
    return Case("transpose", [s.input], lambda x: op(x, *s.args, **s.kwargs), permutation=permutation)


@adapts("expand", "expand_copy", "expand_as", "broadcast_to")
def expand(op, s):
    shape = list(s.args[0].shape) if op.name == "expand_as" else sizes_in(s.args)
    need(-1 not in shape, "size -1")
    return Case("broadcast_to", [s.input], lambda x: op(x, *s.args), shape=shape)


@adapts("cat", "stack")
def join(op, s):
    (dim,) = arguments(s, dim=0)
    return Case("concat" if op.name == "cat" else "stack", s.input, lambda *x: op(list(x), dim), axis=dim)


@adapts("split", "split.list_args", "split_with_sizes", "split_with_sizes_copy", "chunk", "tensor_split", "unsafe_split",
        "unsafe_chunk")
def split(op, s):
    dim = s.args[1] if len(s.args) > 1 else s.kwargs.get("dim", 0)
    need(s.input.dim() > 0, "a scalar")
    sizes = [part.shape[dim] for part in op(s.input, *s.args, **s.kwargs)]
    equal = op.name in ("chunk", "unsafe_chunk") and len(set(sizes)) == 1
    return Case("split", [s.input], lambda x: op(x, *s.args, **s.kwargs), axis=dim,
                **({"parts": len(sizes)} if equal else {"sizes": sizes}))


@adapts("unbind", "unbind_copy")
def unbind(op, s):
    (dim,) = arguments(s, dim=0)
    return Case("unstack", [s.input], lambda x: op(x, dim), axis=dim)


@adapts("narrow", "narrow_copy")
def narrow(op, s):
    dim, start, length = arguments(s, dim=None, start=None, length=None)
    need(isinstance(start, int) and s.input.dim() > 0 and length >= 0, "a tensor as start, a scalar, no length")
    begin, size = [0] * s.input.dim(), list(s.input.shape)
    need(start >= -size[dim], "further from the end than the beginning")
    begin[dim], size[dim] = start % s.input.shape[dim] if start < 0 else start, length
    return Case("slice", [s.input], lambda x: op(x, dim, start, length), begin=begin, size=size)


@adapts("select", "__getitem__", "slice")
def index(op, s):
    if op.name == "select":
        dim, i = arguments(s, dim=None, index=None)
        key = [slice(None)] * (dim % s.input.dim()) + [i]
    elif op.name == "slice":
        dim, start, stop, step = arguments(s, dim=0, start=None, end=None, step=1)
        key = [slice(None)] * (dim % s.input.dim()) + [slice(start, stop, step)]
    else:
        (key,) = arguments(s, index=None)
        key = list(key) if isinstance(key, tuple) else [key]
    need(1 <= len(key) <= 4 and all(isinstance(k, slice) or type(k) is int for k in key), "arrays of positions, None")
    return Case("index", [s.input], lambda x: op(x, *s.args, **s.kwargs),
                index=[k if isinstance(k, int) else [k.start, k.stop, k.step or 1] for k in key])


@adapts("constant_pad_nd", "nn.functional.pad.constant")
def pad(op, s):
    widths, *_, value = arguments(s, pad=None, value=0) if op.name == "constant_pad_nd" else arguments(
        s, pad=None, mode="constant", value=None)
    need(all(width >= 0 for width in widths) and len(widths) <= 2 * s.input.dim(), "negative padding, more pairs than axes")
    pairs = [[0, 0]] * (s.input.dim() - len(widths) // 2) + [list(widths[i:i + 2]) for i in range(len(widths) - 2, -1, -2)]
    value = 0 if value is None else value
    return Case("pad", [s.input], lambda x: F.pad(x, widths, value=value), pad=pairs, value=number(value))


@adapts("tile", "repeat")
def tile(op, s):
    repeats = sizes_in(s.args) if s.args else list(s.kwargs["dims"])
    need(len(repeats) <= s.input.dim(), "more repeats than axes")
    return Case("tile", [s.input], lambda x: op(x, *s.args, **s.kwargs),
                multiples=[1] * (s.input.dim() - len(repeats)) + repeats)


@adapts("flip", "fliplr", "flipud")
def flip(op, s):
    chosen = {"fliplr": [1], "flipud": [0]}.get(op.name) or list(s.args[0] if s.args else s.kwargs["dims"])
    return Case("reverse", [s.input], lambda x: op(x, *s.args, **s.kwargs), axes=chosen)


@adapts("index_select")
def index_select(op, s):
    dim, i = arguments(s, dim=None, index=None)
    return Case("gather", [s.input, i], lambda x, i: op(x, dim, i), axis=dim)


def made(op, s, function, **attributes):
    """A tensor without inputs."""
    dtype = s.kwargs.get("dtype")
    need(dtype is None or dtype in NAMES, "dtype")
    return Case(function, [], lambda: op(s.input, *s.args, **s.kwargs), dtype=NAMES[dtype or torch.get_default_dtype()],
                **attributes)


@adapts("zeros", "ones", "full")
def filled(op, s):
    return made(op, s, op.name, shape=list(s.input), **({"value": number(s.args[0])} if op.name == "full" else {}))


@adapts("arange")
def arange(op, s):
    values = [s.input, *s.args] + ([s.kwargs["end"]] if "end" in s.kwargs else [])
    start, stop = (0, values[0]) if len(values) == 1 else values[:2]
    step = values[2] if len(values) > 2 else s.kwargs.get("step", 1)
    need("dtype" in s.kwargs or any(isinstance(value, float) for value in (start, stop, step)), "integers by default")
    return made(op, s, "range", start=number(start), stop=number(stop), step=number(step))


@adapts("linspace")
def linspace(op, s):
    stop, count = s.args
    need(isinstance(count, int), "a number that is not a count")
    return made(op, s, "linspace", start=number(s.input), stop=number(stop), count=count)


@adapts("eye")
def eye(op, s):
    return made(op, s, "eye", rows=s.input, **({"columns": s.args[0]} if s.args else {}))
