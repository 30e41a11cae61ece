"""The layers and losses of Tandem for PyTorch's modules. A case's inputs are the module's inputs, then its parameters in
Tandem's layout; the gradient is with respect to the first ones."""

import torch
import torch.nn.functional as F

from check_operations.cases import Case, channels_first, channels_last, convolution, need, two

ACTIVATIONS = {"ReLU": "relu", "ReLU6": "relu6", "SELU": "selu", "SiLU": "swish", "Sigmoid": "sigmoid", "Tanh": "tanh",
               "Softplus": "softplus", "ELU": "elu", "GELU": "gelu", "Softmax": "softmax"}
LOSSES = {"MSELoss": "mse", "L1Loss": "mae", "HuberLoss": "huber", "BCELoss": "bce", "BCEWithLogitsLoss": "bce_logits",
          "KLDivLoss": "kl", "CrossEntropyLoss": "sparse"}
DEFAULTS = {"alpha": 1, "approximate": "none", "beta": 1, "threshold": 20}


def given(*parameters):
    return [parameter for parameter in parameters if parameter is not None]


def activation(name, m, x):
    need(all(getattr(m, key, value) == value for key, value in DEFAULTS.items()), "arguments")
    need(getattr(m, "dim", -1) in (-1, x.dim() - 1), "another axis")
    return Case("Activation", [x], m, activation=ACTIVATIONS[name])


# By PyTorch's names: the function, and the module's arguments.
MORE_ACTIVATIONS = {"CELU": ("celu", "alpha"), "GLU": ("glu", "dim"), "Hardshrink": ("hardshrink", "lambd"),
                    "Hardsigmoid": ("hardsigmoid",), "Hardswish": ("hardswish",), "LogSigmoid": ("logsigmoid",),
                    "Mish": ("mish",), "Softmin": ("softmin", "dim"), "Softshrink": ("softshrink", "lambd"),
                    "Softsign": ("softsign",), "Tanhshrink": ("tanhshrink",), "Threshold": ("threshold", "threshold", "value")}


def more_activation(name, m, x):
    function, *keys = MORE_ACTIVATIONS[name]
    return Case(f"F.{function}", [x], m, **{key: getattr(m, key) for key in keys})


def prelu(name, m, x):
    return Case("F.prelu", [x, m.weight], F.prelu, [0])


# The same for losses.
MORE_LOSSES = {"CosineEmbeddingLoss": ("cosine_embedding_loss", "margin"),
               "GaussianNLLLoss": ("gaussian_nll_loss", "full", "eps"),
               "HingeEmbeddingLoss": ("hinge_embedding_loss", "margin"),
               "MarginRankingLoss": ("margin_ranking_loss", "margin"),
               "MultiLabelSoftMarginLoss": ("multilabel_soft_margin_loss",),
               "MultiMarginLoss": ("multi_margin_loss", "p", "margin"), "NLLLoss": ("nll_loss", "ignore_index"),
               "PoissonNLLLoss": ("poisson_nll_loss", "log_input", "full", "eps"),
               "SmoothL1Loss": ("smooth_l1_loss", "beta"), "SoftMarginLoss": ("soft_margin_loss",),
               "TripletMarginLoss": ("triplet_margin_loss", "margin", "p", "eps", "swap")}


def more_loss(name, m, *inputs):
    function, *keys = MORE_LOSSES[name]
    return Case(f"F.{function}", given(*inputs, getattr(m, "weight", None)), lambda *x: m(*x[:len(inputs)]), [0],
                reduction=m.reduction, **{key: getattr(m, key) for key in keys})


def loss(name, m, x, y):
    """PyTorch's means are over elements, Tandem's sums over positions of means over the last axis."""
    need(m.reduction in ("mean", "sum") and x.dim() > 1, "not reduced, or a vector")
    need(not any(getattr(m, key, None) for key in ("log_target", "label_smoothing")), "log_target, smoothing")
    need(getattr(m, "weight", None) is None and getattr(m, "pos_weight", None) is None, "weights")
    attributes = {"loss": LOSSES[name], "reduction": m.reduction, "delta": getattr(m, "delta", 1.0)}
    if name == "CrossEntropyLoss":
        need(not y.is_floating_point() and not (y == m.ignore_index).any(), "probabilities, ignored labels")
        return Case("Loss", [y, channels_last(x)], lambda y, x: m(channels_first(x), y), [1], **attributes)
    if name == "KLDivLoss":
        factor = x.shape[-1] if m.reduction == "mean" else 1
        return Case("Loss", [y, x.exp()], lambda y, p: m(p.log(), y) * factor, [1], **attributes)
    factor = 1 / x.shape[-1] if m.reduction == "sum" else 1
    return Case("Loss", [y, x], lambda y, x: m(x, y) * factor, [1], **attributes)


def dense(name, m, x):
    need(x.dim() > 1, "a vector")
    return Case("Dense", given(x, m.weight.t(), m.bias), lambda x, w, *b: F.linear(x, w.t(), *b), [0])


def conv2d(name, m, x):
    need(m.padding_mode == "zeros", "padding mode")
    pad = {} if isinstance(m.padding, str) or not any(m.padding) else {"pad": list(m.padding)}
    inputs, reference, attributes = convolution(x, m.weight, m.bias, m.stride, m.padding, m.dilation, m.groups, **pad)
    return Case("Conv2D", inputs, reference, [0], **attributes)


def batch_norm(name, m, x):
    need(x.dim() >= 2 and (m.training or m.track_running_stats), "no moments")
    moments = [] if m.training else [m.running_mean, m.running_var]

    def reference(x, *p):
        scale_and_shift, moments = (p[:2], p[2:]) if m.affine else ((None, None), p)
        return channels_last(F.batch_norm(channels_first(x), *(moments or (None, None)), *scale_and_shift, m.training, 0.0,
                                          m.eps))
    return Case("BatchNormalization", [channels_last(x), *given(m.weight, m.bias), *moments], reference, [0],
                epsilon=m.eps, affine=m.affine, training=m.training)


def layer_norm(name, m, x):
    need(len(m.normalized_shape) == 1, "several axes")
    return Case("LayerNormalization", given(x, m.weight, m.bias), lambda x, *p: F.layer_norm(
        x, m.normalized_shape, *p, eps=m.eps), [0], epsilon=m.eps, scale=m.weight is not None, center=m.bias is not None)


def embedding(name, m, x):
    need(m.padding_idx is None and m.max_norm is None, "padding_idx, max_norm")
    return Case("Embedding", [x, m.weight], F.embedding, [])


def pool(name, m, x):
    size = two(m.kernel_size)
    attributes = {"size": size, "stride": two(m.stride or size), "padding": two(m.padding), "ceil": m.ceil_mode}
    if "Max" in name:
        need(not m.return_indices, "indices")
        return Case("F.max_pool2d", [x], m, **attributes, dilation=two(m.dilation))
    divisor = {} if m.divisor_override is None else {"divisor": m.divisor_override}
    return Case("F.avg_pool2d", [x], m, **attributes, counted=m.count_include_pad, **divisor)


def adaptive_pool(name, m, x):
    need(not getattr(m, "return_indices", False) and None not in two(m.output_size), "indices, a size that stays")
    return Case("F.adaptive_max_pool2d" if "Max" in name else "F.adaptive_avg_pool2d", [x], m, size=two(m.output_size))


def listed(value, axes):
    """A number for one axis, a list for several."""
    return value if axes == 1 and isinstance(value, int) else value[0] if axes == 1 else (
        [value] * axes if isinstance(value, int) else list(value))


def pool_of_axes(name, m, x):
    axes, kind = int(name[-2]), "max" if "Max" in name else "avg"
    if name.startswith("Adaptive"):
        size = listed(m.output_size, axes)
        need(not getattr(m, "return_indices", False) and None not in (size if axes > 1 else [size]), "indices, a size that stays")
        return Case(f"F.adaptive_{kind}_pool{axes}d", [x], m, size=size)
    need(not getattr(m, "return_indices", False), "indices")
    named = {"size": m.kernel_size, "stride": m.stride, "padding": m.padding, **({"dilation": m.dilation} if kind == "max" else {})}
    further = {} if kind == "max" else {"counted": m.count_include_pad}
    if getattr(m, "divisor_override", None) is not None:
        further["divisor"] = m.divisor_override
    return Case(f"F.{kind}_pool{axes}d", [x], m, ceil=m.ceil_mode, **further,
                **{key: listed(value, axes) for key, value in named.items()})


def lp_pool(name, m, x):
    axes = int(name[-2])
    stride = m.kernel_size if m.stride is None else m.stride
    return Case(f"F.lp_pool{axes}d", [x], m, p=m.norm_type, ceil=m.ceil_mode, size=listed(m.kernel_size, axes),
                stride=listed(stride, axes))


def conv_of_axes(name, m, x):
    axes, transposed = int(name[-2]), "Transpose" in name
    need(m.padding_mode == "zeros" and x.dim() == axes + 2 and not isinstance(m.padding, str), "padding mode, batch axis")
    function = getattr(F, f"conv_transpose{axes}d" if transposed else f"conv{axes}d")
    named = {"stride": m.stride, "padding": m.padding, "dilation": m.dilation, **({"output_padding": m.output_padding} if transposed else {})}
    rest = (m.output_padding, m.groups, m.dilation) if transposed else (m.dilation, m.groups)
    return Case("F." + function.__name__, given(x, m.weight, m.bias), lambda x, w, *b: function(
        x, w, b[0] if b else None, m.stride, m.padding, *rest), [0], groups=m.groups,
                **{key: listed(value, axes) for key, value in named.items()})


def pad(name, m, x):
    mode = {"Refl": "reflect", "Repl": "replicate", "Circ": "circular"}.get(name[:4], "constant")
    return Case("F.pad", [x], m, sides=list(m.padding), mode=mode, value=getattr(m, "value", 0))


def hardtanh(name, m, x):
    return Case("clip_by_value", [x], m, low=m.min_val, high=m.max_val)


def leaky_relu(name, m, x):
    return Case("leaky_relu", [x], m, alpha=m.negative_slope)


def softmax_of(name, m, x):
    dim = -3 if name == "Softmax2d" else m.dim
    need(dim is not None, "no axis")
    return Case("log_softmax" if name.startswith("Log") else "softmax", [x], m, axis=dim)


def group_norm(name, m, x):
    return Case("F.group_norm", given(x, m.weight, m.bias), lambda x, *p: F.group_norm(x, m.num_groups, *p, eps=m.eps), [0],
                groups=m.num_groups, eps=m.eps)


def instance_norm(name, m, x):
    need(x.dim() == int(name[-2]) + 2 and (m.training or not m.track_running_stats), "running moments, batch axis")
    return Case("F.instance_norm", given(x, m.weight, m.bias), lambda x, *p: F.instance_norm(x, None, None, *p, eps=m.eps), [0],
                eps=m.eps)


def rms_norm(name, m, x):
    shape = list(m.normalized_shape)
    return Case("F.rms_norm", given(x, m.weight), lambda x, *w: F.rms_norm(x, shape, *w, eps=m.eps), [0], shape=shape,
                **({} if m.eps is None else {"eps": m.eps}))


def local_response_norm(name, m, x):
    return Case("F.local_response_norm", [x], m, size=m.size, alpha=m.alpha, beta=m.beta, k=m.k)


def bilinear(name, m, x, y):
    return Case("F.bilinear", given(x, y, m.weight, m.bias), F.bilinear, [0, 1])


def recurrent(name, m, x, state=None):
    need(state is None and not isinstance(x, tuple) and torch.is_tensor(x) and m.dropout == 0 and not getattr(m, "proj_size", 0),
         "states, packed sequences, dropout, projections")
    weights = list(m.parameters())
    names = [key for key, _ in m.named_parameters()]
    return Case(name, [x, *weights], lambda x, *w: torch.func.functional_call(m, dict(zip(names, w)), (x,))[0], [0],
                inputs=m.input_size, hidden=m.hidden_size, layers=m.num_layers, bias=m.bias, batch_first=m.batch_first,
                both=m.bidirectional, relu=getattr(m, "nonlinearity", "tanh") == "relu")


def conv_transpose2d(name, m, x):
    need(m.padding_mode == "zeros" and x.dim() == 4, "padding mode, batch axis")
    inputs = [channels_last(x), m.weight.permute(2, 3, 1, 0), *given(m.bias)]
    return Case("conv2d_transpose", inputs, lambda x, w, *b: channels_last(F.conv_transpose2d(
        channels_first(x), w.permute(3, 2, 0, 1), *(b or [None]), m.stride, m.padding, m.output_padding, m.groups,
        m.dilation)), [0], strides=list(m.stride), pad=list(m.padding), more=list(m.output_padding), groups=m.groups,
                dilations=list(m.dilation))


def zero_pad(name, m, x):
    left, right, top, bottom = m.padding
    need(x.dim() == 4 and left == right and top == bottom, "batch axis, uneven padding")
    return Case("ZeroPadding2D", [channels_last(x)], lambda x: channels_last(m(channels_first(x))), pad=[top, left])


def attention(name, m, q, k, v, key_padding_mask=None, attn_mask=None, need_weights=True, **further):
    need(m.bias_k is None and not m.add_zero_attn and not further, "bias_kv, zero_attn")
    if q.dim() == 2:
        q, k, v = (x.unsqueeze(0 if m.batch_first else 1) for x in (q, k, v))
    batch_first = (lambda x: x) if m.batch_first else (lambda x: x.transpose(0, 1))
    width, heads, depth = m.embed_dim, m.num_heads, m.embed_dim // m.num_heads
    n, queries, keys = batch_first(q).shape[0], batch_first(q).shape[1], batch_first(k).shape[1]
    hidden = torch.zeros(n, heads, queries, keys, dtype=torch.bool)
    for mask in given(key_padding_mask, attn_mask):
        need(mask.dtype == torch.bool, "a mask to add")
        hidden = hidden | (mask.reshape(n, 1, 1, keys) if mask is key_padding_mask else
                           mask.reshape(n, heads, queries, keys) if mask.dim() == 3 else mask)
    need(not hidden.all(-1).any(), "a query without keys")
    masks = [~hidden] if hidden.any() else []
    weights = m.in_proj_weight.chunk(3) if m._qkv_same_embed_dim else (m.q_proj_weight, m.k_proj_weight, m.v_proj_weight)
    biases = [None] * 3 if m.in_proj_bias is None else m.in_proj_bias.chunk(3)
    parameters = []
    for weight, bias in zip(weights, biases):
        parameters += [weight.t().reshape(-1, heads, depth), *([] if bias is None else [bias.reshape(heads, depth)])]
    parameters += given(m.out_proj.weight.t().reshape(heads, depth, width), m.out_proj.bias)

    def reference(q, v, k, *rest):
        mask = (~rest[0]).reshape(n * heads, queries, keys) if masks else None
        return batch_first(m(batch_first(q), batch_first(k), batch_first(v), attn_mask=mask, need_weights=False)[0])
    return Case("MultiHeadAttention", [batch_first(q), batch_first(v), batch_first(k), *masks, *parameters], reference,
                [0, 1, 2], heads=heads, depth=depth, bias=m.in_proj_bias is not None, inputs=3 + len(masks))


ADAPTERS = {**dict.fromkeys(ACTIVATIONS, activation), **dict.fromkeys(LOSSES, loss), "Linear": dense, "Conv2d": conv2d,
            **dict.fromkeys(["BatchNorm1d", "BatchNorm2d", "BatchNorm3d"], batch_norm), "LayerNorm": layer_norm,
            "Embedding": embedding, "MaxPool2d": pool, "AvgPool2d": pool, "AdaptiveAvgPool2d": adaptive_pool,
            "AdaptiveMaxPool2d": adaptive_pool, "ConvTranspose2d": conv_transpose2d, "ZeroPad2d": zero_pad,
            "MultiheadAttention": attention, "PReLU": prelu, **dict.fromkeys(MORE_ACTIVATIONS, more_activation),
            **dict.fromkeys(MORE_LOSSES, more_loss),
            **dict.fromkeys([f"{kind}Pool{axes}d" for axes in (1, 3) for kind in ("Max", "Avg", "AdaptiveMax", "AdaptiveAvg")],
                            pool_of_axes),
            **dict.fromkeys(["LPPool1d", "LPPool2d", "LPPool3d"], lp_pool),
            **dict.fromkeys(["Conv1d", "Conv3d", "ConvTranspose1d", "ConvTranspose3d"], conv_of_axes),
            **dict.fromkeys([f"{kind}Pad{axes}d" for kind in ("Reflection", "Replication", "Circular", "Constant") for axes in
                             (1, 2, 3)] + ["ZeroPad1d", "ZeroPad3d"], pad),
            **dict.fromkeys(["LogSoftmax", "Softmax2d"], softmax_of), "Hardtanh": hardtanh, "LeakyReLU": leaky_relu,
            "GroupNorm": group_norm, **dict.fromkeys([f"InstanceNorm{axes}d" for axes in (1, 2, 3)], instance_norm),
            "RMSNorm": rms_norm, "LocalResponseNorm": local_response_norm, "Bilinear": bilinear,
            **dict.fromkeys(["RNN", "GRU", "LSTM"], recurrent)}


def case_of(name, made, dtype, training):
    """The case of a ModuleInput of module_db."""
    need(made.forward_input is not None, "no input")
    constructed, given = made.constructor_input, made.forward_input
    module = getattr(torch.nn, name)(*constructed.args, **constructed.kwargs)
    module = module.to(dtype).train(training).requires_grad_(False)
    return ADAPTERS[name](name, module, *given.args, **given.kwargs)
