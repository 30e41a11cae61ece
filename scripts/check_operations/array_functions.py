"""Adapters of the functions that sort, describe, join, cut, turn and overwrite tensors, and of further arithmetic."""

import torch
import torch.nn.functional as F

from check_operations.cases import Case, NAMES, is_tensor, need, number
from check_operations.functions import adapts, arguments, axes, like, made


def floating(s):
    need(is_tensor(s.input) and s.input.is_floating_point(), "integers")


# ---- element by element -----------------------------------------------------------------------------------------

UNARY = {**{name: name for name in "isneginf isposinf log10 log2 tan deg2rad rad2deg signbit".split()},
         "isinf": "is_inf", "sgn": "sign", "special.entr": "entr"}
SAME = ["real", "resolve_conj", "resolve_neg", "conj", "conj_physical"]  # of real numbers
BINARY = {"fmax": "fmax", "fmin": "fmin", "copysign": "copysign", "ldexp": "ldexp", "special.xlog1py": "xlog1py",
          "inner": "inner", "dot": "matmul", "vdot": "matmul", "mv": "matmul", "linalg.vecdot": "vecdot", "outer": "outer",
          "float_power": "float_power", "__rmatmul__": "matmul", "heaviside": "heaviside"}


@adapts(*UNARY, *SAME)
def unary(op, s):
    need(not s.args and not s.kwargs and (op.name in SAME or s.input.is_floating_point()), "integers, arguments")
    return Case(UNARY.get(op.name, "identity"), [s.input], op)


@adapts(*BINARY)
def binary(op, s):
    (other,) = arguments(s, other=None)
    need(is_tensor(other) and is_tensor(s.input), "a number")
    need(s.input.is_floating_point() or op.name in ("fmax", "fmin", "float_power", "outer"), "integers")
    a, b = (other, s.input) if op.name == "__rmatmul__" else (s.input, other)
    ordered = (lambda x, y: op(y, x)) if op.name == "__rmatmul__" else lambda x, y: op(x, y)
    return Case(BINARY[op.name], [a, b], ordered, [] if op.name == "heaviside" else None)


@adapts("round.decimals_0", "round.decimals_3", "round.decimals_neg_3")
def round_decimals(op, s):
    (decimals,) = arguments(s, decimals=0)
    floating(s)
    return Case("round_decimals", [s.input], lambda x: op(x, decimals=decimals), decimals=decimals)


@adapts("addmm", "addmm.decomposed", "addmv", "addr", "baddbmm", "addbmm")
def added_product(op, s):
    a, b, beta, alpha = arguments(s, a=None, b=None, beta=1, alpha=1)
    floating(s)
    return Case(op.name, [s.input, a, b], lambda x, p, q: op(x, p, q, beta=beta, alpha=alpha), beta=number(beta),
                alpha=number(alpha))


@adapts("linalg.multi_dot")
def multi_dot(op, s):
    return Case("multi_dot", s.input, lambda *x: op(list(x)))


@adapts("softmax.with_dtype", "log_softmax.with_dtype", "nn.functional.softmin.with_dtype")
def softmax_of(op, s):
    dim, dtype = arguments(s, dim=None, dtype=None)
    need(dtype in NAMES and s.input.is_floating_point(), "dtype")
    return Case("cast_" + (op.name.split(".")[-1]), [s.input], lambda x: op(x, dim=dim, dtype=dtype), axis=dim,
                dtype=NAMES[dtype])


@adapts("nn.functional.normalize")
def normalize(op, s):
    p, dim, eps, _ = arguments(s, p=2.0, dim=1, eps=1e-12, out=None)
    need(p > 0, "an order below 0")
    return Case("F.normalize", [s.input], lambda x: op(x, p, dim, eps), p=number(p), dim=dim, eps=number(eps))


@adapts("nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.alpha_dropout")
def dropout(op, s):
    p, training, _ = arguments(s, p=0.5, training=True, inplace=False)
    need(not training or p == 0, "random numbers")
    return Case("identity", [s.input], lambda x: op(x, p, training=training))


# ---- creation -----------------------------------------------------------------------------------------------------

@adapts("full_like", "fill")
def full_like(op, s):
    value = s.args[0] if s.args else s.kwargs.get("value", s.kwargs.get("fill_value"))
    need(not is_tensor(value) and not s.kwargs.get("dtype"), "dtype, a tensor")
    return Case("full_like", [s.input], lambda x: op(x, value), [], value=number(value))


@adapts("new_full", "new_ones", "new_zeros")
def new(op, s):
    dtype = s.kwargs.get("dtype") or s.input.dtype
    need(dtype in NAMES, "dtype")
    value = {"value": number(s.args[1])} if op.name == "new_full" else {}
    return Case(op.name[4:], [], lambda: op(s.input, *s.args, **s.kwargs), shape=list(s.args[0]), dtype=NAMES[dtype], **value)


@adapts("logspace")
def logspace(op, s):
    stop, count, base = arguments(s, end=None, steps=None, base=10.0, dtype=None, device=None)[:3]
    need(isinstance(count, int) and s.kwargs.get("dtype") in (None, torch.float32, torch.float64) and base > 0, "dtype, base")
    return made(op, s, "logspace", start=number(s.input), stop=number(stop), count=count, base=number(base))


@adapts("tril_indices", "triu_indices")
def half_indices(op, s):
    offset = s.args[1] if len(s.args) > 1 else s.kwargs.get("offset", 0)
    need(s.kwargs.get("dtype", torch.long) == torch.long, "dtype")
    return Case(op.name, [], lambda: op(s.input, *s.args, **s.kwargs), rows=s.input, columns=s.args[0], offset=offset)


# ---- order statistics ---------------------------------------------------------------------------------------------

@adapts("sort", "argsort")
def sort(op, s):
    dim, descending, stable = arguments(s, dim=-1, descending=False, stable=False)
    need(s.input.dim() > 0, "a scalar")
    return Case(op.name, [s.input], lambda x: op(x, dim=dim, descending=descending, stable=True), dim=dim,
                descending=bool(descending))


@adapts("msort")
def msort(op, s):
    need(s.input.dim() > 0, "a scalar")
    return Case("sorted", [s.input], op, dim=0, descending=False)


@adapts("topk", "kthvalue")
def extremes(op, s):
    k, dim, largest, _ = arguments(s, k=None, dim=-1, **({"largest": True, "sorted": True} if op.name == "topk" else
                                                        {"keepdim": False, "unused": None}))
    need(s.input.dim() > 0, "a scalar")
    further = {"largest": largest} if op.name == "topk" else {"keepdim": largest}
    return Case(op.name, [s.input], lambda x: op(x, k, dim, **further)[0], k=k, dim=dim, **further)


@adapts("median", "nanmedian", "mode")
def median(op, s):
    dim, keepdim = arguments(s, dim=-1 if op.name == "mode" else None, keepdim=False)
    need(s.input.numel() > 0, "no elements")
    if dim is None:
        return Case(op.name, [s.input], lambda x: op(x))
    return Case(op.name, [s.input], lambda x: op(x, dim, keepdim)[0], dim=dim, keepdim=keepdim)


@adapts("quantile", "nanquantile")
def quantile(op, s):
    q, dim, keepdim, how = arguments(s, q=None, dim=None, keepdim=False, interpolation="linear")
    need(s.input.numel() > 0, "no elements")
    attributes = {"keepdim": keepdim, "how": how, **({} if dim is None else {"dim": dim})}
    if not is_tensor(q):
        return Case(op.name, [s.input], lambda x: op(x, q, dim, keepdim, interpolation=how), q=number(q), **attributes)
    return Case(op.name, [s.input, q], lambda x, q: op(x, q, dim, keepdim, interpolation=how), [0], **attributes)


# ---- reductions ---------------------------------------------------------------------------------------------------

@adapts("nansum", "nanmean", "count_nonzero", "aminmax")
def reduction(op, s):
    dim, keepdim, dtype = arguments(s, dim=None, keepdim=False, dtype=None)
    need(dtype is None and (op.name != "aminmax" or s.input.numel() > 0), "dtype, no elements")
    need(op.name != "nansum" or s.input.dtype != torch.bool, "bools")
    chosen = {} if dim is None and not keepdim else {"dim": dim, "keepdim": keepdim}
    if op.name == "count_nonzero":
        chosen.pop("keepdim", None)
    same = like if op.name.startswith("nan") else lambda x, result: result
    return Case(op.name, [s.input], lambda x: same(x, op(x, **chosen)), **axes(dim, keepdim))


@adapts("norm.inf")
def norm_inf(op, s):
    order, dim, keepdim = arguments(s, p=None, dim=None, keepdim=False)
    need(dim is None and not keepdim and order in (float("inf"), float("-inf")), "axes")
    return Case("norm_of_order", [s.input], lambda x: op(x, order), p=number(order))


@adapts("dist")
def dist(op, s):
    other, p = arguments(s, other=None, p=2)
    return Case("dist", [s.input, other], lambda x, y: op(x, y, p), p=number(p))


@adapts("renorm")
def renorm(op, s):
    p, dim, most = s.args
    return Case("renorm", [s.input], lambda x: op(x, p, dim, most), p=number(p), dim=dim, most=number(most))


@adapts("cov", "corrcoef")
def cov(op, s):
    correction, frequencies, weights = arguments(s, correction=1, fweights=None, aweights=None)
    floating(s)
    need(frequencies is None and weights is None, "weights")
    further = {} if op.name == "corrcoef" else {"correction": correction}
    return Case(op.name, [s.input], lambda x: op(x, **further), **further)


@adapts("trapezoid", "trapz", "cumulative_trapezoid")
def trapezoid(op, s):
    floating(s)
    x, dx, dim = arguments(s, x=None, dx=1.0, dim=-1)
    name = "cumulative_trapezoid" if "cumulative" in op.name else "trapezoid"
    if x is None:
        return Case(name, [s.input], lambda y: op(y, dx=dx, dim=dim), dx=number(dx), dim=dim)
    need(x.dim() in (1, s.input.dim()), "missing axes")
    return Case(name, [s.input, x], lambda y, x: op(y, x, dim=dim), dim=dim)


@adapts("isin")
def isin(op, s):
    among, unique, invert = arguments(s, test_elements=None, assume_unique=False, invert=False)
    need(is_tensor(s.input) and is_tensor(among) and not invert, "a number, inverted")
    return Case("isin", [s.input, among], op, [])


@adapts("histc")
def histc(op, s):
    bins, low, high = arguments(s, bins=100, min=0, max=0)
    floating(s)
    return Case("histc", [s.input], lambda x: op(x, bins, low, high), [], bins=bins, low=number(low), high=number(high))


@adapts("linalg.vander")
def vander(op, s):
    (n,) = arguments(s, N=None)
    need(s.input.dim() > 0, "a scalar")
    return Case("vander", [s.input], lambda x: like(x, op(x, N=n)), **({} if n is None else {"columns": n}))


@adapts("bincount")
def bincount(op, s):
    weights, least = arguments(s, weights=None, minlength=0)
    need(weights is None, "weights")
    return Case("bincount", [s.input], lambda x: op(x, minlength=least), [], least=least)


@adapts("unique")
def unique(op, s):
    order, inverse, counts, dim = arguments(s, sorted=True, return_inverse=False, return_counts=False, dim=None)
    need(order and not inverse and not counts and dim is None, "positions, counts, slices")
    return Case("unique", [s.input], op, [])


@adapts("nonzero", "argwhere")
def nonzero(op, s):
    (as_tuple,) = arguments(s, as_tuple=False)
    need(not as_tuple, "vectors")
    return Case("nonzero", [s.input], lambda x: op(x), [])


# ---- arrays -------------------------------------------------------------------------------------------------------

@adapts("hstack", "vstack", "dstack", "column_stack")
def stacked(op, s):
    return Case(op.name, s.input, lambda *x: op(list(x)))


@adapts("block_diag", "cartesian_prod")
def of_list(op, s):
    inputs = [s.input, *s.args] if is_tensor(s.input) else list(s.input)
    need(all(is_tensor(x) for x in inputs) and len({x.dtype for x in inputs}) == 1, "dtypes")
    return Case(op.name, inputs, lambda *x: op(*x))


@adapts("hsplit", "vsplit", "dsplit")
def split(op, s):
    (where,) = s.args
    need(isinstance(where, int) or all(isinstance(i, int) for i in where), "names")
    axis = {"hsplit": 0 if s.input.dim() == 1 else 1, "vsplit": 0, "dsplit": 2}[op.name]
    chosen = {"parts": where} if isinstance(where, int) else {"positions": list(where)}
    return Case("tensor_split", [s.input], lambda x: op(x, where), axis=axis, **chosen)


@adapts("unfold", "unfold_copy")
def unfold(op, s):
    dim, size, step = s.args
    return Case("unfold", [s.input], lambda x: op(x, dim, size, step), axis=dim, size=size, step=step)


@adapts("rot90")
def rot90(op, s):
    k, dims = arguments(s, k=1, dims=(0, 1))
    return Case("rot90", [s.input], lambda x: op(x, k, dims), times=k, first=dims[0], second=dims[1])


@adapts("tril", "triu")
def half(op, s):
    (diagonal,) = arguments(s, diagonal=0)
    return Case(op.name, [s.input], lambda x: op(x, diagonal), diagonal=diagonal)


@adapts("trace", "diag", "diagflat")
def diag(op, s):
    (diagonal,) = arguments(s, **({} if op.name == "trace" else {"diagonal" if op.name == "diag" else "offset": 0})) or [0]
    x = s.input
    need(x.dim() == 2 or op.name == "diagflat" or (op.name == "diag" and x.dim() == 1), "another rank")
    if op.name == "trace":
        return Case("trace", [x], lambda x: like(x, op(x)))
    embeds = op.name == "diagflat" or x.dim() == 1
    return Case("diag_embed_flat" if embeds else "diagonal", [x], lambda x: op(x, diagonal), offset=diagonal,
                **({} if embeds else {"first": 0, "second": 1}))


@adapts("diagonal", "diagonal_copy", "linalg.diagonal")
def diagonal(op, s):
    first, second = (-2, -1) if "linalg" in op.name else (0, 1)
    offset, first, second = arguments(s, offset=0, dim1=first, dim2=second)
    return Case("diagonal", [s.input], lambda x: op(x, *s.args, **s.kwargs), offset=offset, first=first, second=second)


@adapts("diagonal_scatter")
def diagonal_scatter(op, s):
    source, offset, first, second = arguments(s, src=None, offset=0, dim1=0, dim2=1)
    rank = s.input.dim()
    need((first % rank, second % rank) == (rank - 2, rank - 1), "other axes")
    return Case("diagonal_scatter", [s.input, source], lambda x, y: op(x, y, offset, first, second), offset=offset)


@adapts("select_scatter")
def select_scatter(op, s):
    source, dim, index = arguments(s, src=None, dim=None, index=None)
    return Case("select_scatter", [s.input, source], lambda x, y: op(x, y, dim, index), axis=dim, index=index)


@adapts("slice_scatter")
def slice_scatter(op, s):
    source, dim, start, end, step = arguments(s, src=None, dim=0, start=None, end=None, step=1)
    return Case("slice_scatter", [s.input, source], lambda x, y: op(x, y, dim, start, end, step), axis=dim,
                range=[start, end, step])


@adapts("roll")
def roll(op, s):
    shifts, dims = arguments(s, shifts=None, dims=())
    shifts, dims = [([value] if isinstance(value, int) else list(value or [])) for value in (shifts, dims)]
    need(shifts and len(shifts) == (len(dims) or 1), "numbers that do not fit")
    return Case("roll", [s.input], lambda x: op(x, *s.args, **s.kwargs), shifts=shifts, dims=dims)


@adapts("combinations")
def combinations(op, s):
    r, repeated = arguments(s, r=2, with_replacement=False)
    need(r > 0, "no elements")
    return Case("combinations", [s.input], lambda x: op(x, r, repeated), count=r, repeated=repeated)


@adapts("broadcast_tensors")
def broadcast_tensors(op, s):
    inputs = [s.input, *s.args]
    return Case("broadcast_all", inputs, lambda *x: list(op(*x)), shape=list(torch.broadcast_shapes(*(x.shape for x in inputs))))


@adapts("meshgrid.list_of_tensors", "meshgrid.variadic_tensors")
def meshgrid(op, s):
    inputs = [s.input, *s.args] if is_tensor(s.input) else list(s.input)
    inputs = [x if x.dim() else x.reshape(1) for x in inputs]
    indexing = s.kwargs.get("indexing", "ij")
    return Case("meshgrid", inputs, lambda *x: list(torch.meshgrid(*x, indexing=indexing)), indexing=indexing)


@adapts("masked_select")
def masked_select(op, s):
    (mask,) = arguments(s, mask=None)
    need(mask.shape == s.input.shape and mask.dim() > 0, "broadcasting")
    return Case("boolean_mask", [s.input, mask], op)


# ---- positions ----------------------------------------------------------------------------------------------------

@adapts("gather", "take_along_dim")
def gather(op, s):
    if op.name == "gather":
        dim, index, _ = arguments(s, dim=None, index=None, sparse_grad=False)
        need(index.dtype == torch.int64, "an empty index of another dtype")
        return Case("gather_elements", [s.input, index], lambda x, i: op(x, dim, i), axis=dim)
    index, dim = arguments(s, indices=None, dim=None)
    need(dim is not None and (index >= 0).all(), "no axis, positions from the end")
    need(all(a in (1, b) for i, (a, b) in enumerate(zip(index.shape, s.input.shape)) if i != dim % index.dim()), "elements that repeat")
    return Case("take_along_axis", [s.input, index], lambda x, i: op(x, i, dim), axis=dim)


@adapts("take")
def take(op, s):
    return Case("take", [s.input, *arguments(s, index=None)], op)


@adapts("scatter")
def scatter(op, s):
    need(len(s.args) == 3 and not s.kwargs.get("reduce"), "combinations")
    dim, index, source = s.args
    if is_tensor(source):
        return Case("scatter", [s.input, index, source], lambda x, i, y: op(x, dim, i, y), axis=dim)
    return Case("scatter", [s.input, index], lambda x, i: op(x, dim, i, source), axis=dim, value=number(source))


@adapts("scatter_add", "index_copy")
def scatter_add(op, s):
    dim, index, source = s.args
    need(op.name != "index_copy" or index.unique().numel() == index.numel(), "positions that repeat")
    return Case(op.name, [s.input, index, source], lambda x, i, y: op(x, dim, i, y), axis=dim)


REDUCED = ["sum", "prod", "mean", "amax", "amin"]


@adapts(*(f"{name}_reduce.{how}" for name in ("scatter", "index") for how in REDUCED if (name, how) != ("index", "sum")))
def scatter_reduce(op, s):
    dim, index, source, how, include = arguments(s, dim=None, index=None, src=None, reduce=None, include_self=True)
    return Case(op.name, [s.input, index, source], lambda x, i, y: op(x, dim, i, y, how, include_self=include), axis=dim,
                reduce=how, include_self=include)


@adapts("index_fill")
def index_fill(op, s):
    dim, index, value = s.args
    need(not is_tensor(value) and index.dim() == 1 and s.input.dim() > 0, "a tensor as value, scalars")
    return Case("index_fill", [s.input, index], lambda x, i: op(x, dim, i, value), axis=dim, value=number(value))


# ---- special functions and windows --------------------------------------------------------------------------------

@adapts("asin", "acos", "atan", "erfinv", "lgamma", "digamma")
def special(op, s):
    floating(s)
    need(not s.args and not s.kwargs, "arguments")
    return Case(op.name, [s.input], op)


@adapts("atan2")
def atan2(op, s):
    (other,) = arguments(s, other=None)
    floating(s)
    return Case("atan2", [s.input, other], op)


@adapts(*(f"polygamma.polygamma_n_{n}" for n in range(5)), "special.polygamma.special_polygamma_n_0",
        *(f"mvlgamma.mvlgamma_p_{p}" for p in (1, 3, 5)))
def polygamma(op, s):
    (n,) = s.args or s.kwargs.values()
    floating(s)
    if "mvlgamma" in op.name:
        return Case("mvlgamma", [s.input], lambda x: torch.mvlgamma(x, n), p=n)
    return Case("polygamma", [s.input], lambda x: torch.polygamma(n, x), n=n)


@adapts(*(f"signal.windows.{name}" for name in "bartlett blackman cosine exponential gaussian general_cosine general_hamming "
          "hamming hann kaiser nuttall".split()))
def window(op, s):
    name = op.name.split(".")[-1]
    values = {"sym": True, "dtype": torch.float32, "tau": 1.0, "std": 1.0, "beta": 12.0, "alpha": 0.54, "center": None, "a": None,
              **s.kwargs}
    need(values["dtype"] == torch.float64 and values["beta"] < 50, "PyTorch's rounding")
    need("layout" not in s.kwargs and values["center"] is None and not s.args, "a center")
    key = {"exponential": "tau", "gaussian": "std", "kaiser": "beta", "general_hamming": "alpha"}.get(name)
    further = {"number": number(values[key])} if key else {"a": list(values["a"])} if name == "general_cosine" else {}
    return Case(name, [], lambda: op.op(s.input, **s.kwargs), size=s.input, sym=values["sym"], dtype=NAMES[values["dtype"]], **further)
