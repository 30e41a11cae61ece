"""Compares what Tandem computes with what PyTorch does."""

import json

import torch

from check_operations.cases import NAMES
from check_operations.server import Ended

STEPS = {torch.float16: 2**-10, torch.bfloat16: 2**-7, torch.float32: 2**-23, torch.float64: 2**-52}


class Expected:
    """Results, or gradients, by PyTorch in their own dtype and in float64."""

    def __init__(self, own, precise):
        self.own, self.precise = own, precise


def results_of(reference, inputs):
    results = reference(*inputs)
    return [results] if isinstance(results, torch.Tensor) else list(results)


def widened(tensors):
    return [x.double() if x.is_floating_point() else x for x in tensors]


def floating(tensors):
    return [x for x in tensors if x.is_floating_point()]


def derivative(f, inputs, sources, weights, create_graph=False):
    """The gradient of the sum of f's floating results times `weights`. `inputs` may have a graph already."""
    inputs = [x if x.requires_grad or i not in sources else x.clone().requires_grad_() for i, x in enumerate(inputs)]
    pairs = [(y, w) for y, w in zip(floating(f(inputs)), weights) if y.requires_grad]
    chosen = [inputs[i] for i in sources]
    gradients = torch.autograd.grad([y for y, _ in pairs], chosen, [w.to(y.dtype) for y, w in pairs], allow_unused=True,
                                    create_graph=create_graph) if pairs else [None] * len(chosen)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(gradients, chosen)]


class Problem:
    """All that is expected of a case. Raises RuntimeError if PyTorch cannot compute its values."""

    def __init__(self, case, second):
        values = lambda inputs: results_of(case.reference, inputs)  # noqa: E731
        generator = torch.Generator().manual_seed(7)
        like = lambda x: torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.dtype)  # noqa: E731
        self.case, self.cotangents, self.directions = case, [], []
        with torch.no_grad():
            own = values(case.inputs)
            self.expected = {"value": Expected(own, self.in_float64(values, case.inputs))}
        if not all(x.dtype in NAMES for x in own):
            raise RuntimeError("a dtype that Tandem does not have")
        if not case.sources or not floating(own):
            return
        cotangents = [like(x) for x in floating(own)]
        gradient = lambda inputs, more=False: derivative(  # noqa: E731
            values, inputs, case.sources, [c.to(torch.float64) for c in cotangents], more)
        try:
            self.expected["gradient"] = Expected(gradient(case.inputs), self.in_float64(gradient, case.inputs))
            self.cotangents = cotangents
            if second:
                directions = [like(case.inputs[i]) for i in case.sources]
                twice = derivative(lambda inputs: gradient(inputs, True), case.inputs, case.sources, directions)
                self.expected["second"], self.directions = Expected(twice, twice), directions
        except (RuntimeError, NotImplementedError):
            pass  # no derivative in PyTorch

    @staticmethod
    def in_float64(f, inputs):
        try:
            return f(widened(inputs))
        except RuntimeError:
            return f(inputs)


def near(x, y, tolerance):
    rtol, atol = tolerance
    return torch.isclose(x.double(), y.double(), rtol, atol, equal_nan=True) if x.is_floating_point() else x == y


def difference(got, own, precise, tolerance):
    """How a result differs from PyTorch's, or None. A result is right if it is near PyTorch's or near the float64 one, or
    not further from it than twice PyTorch's own error or four roundings of the largest element."""
    if got.shape != own.shape or got.dtype != own.dtype:
        return f"{NAMES[got.dtype]}{list(got.shape)} instead of {NAMES[own.dtype]}{list(own.shape)}"
    right = near(got, own, tolerance) | near(got, precise, tolerance) | near(got, precise.to(got.dtype), tolerance)
    if not right.all() and got.is_floating_point():
        finite = own.isfinite() & precise.isfinite()
        most = lambda x: x[finite].abs().max() if finite.any() else torch.tensor(0.0)  # noqa: E731
        allowed = max(2 * most(own.double() - precise.double()), 4 * STEPS[got.dtype] * most(precise.double()))
        right |= (got.double() - precise.double()).abs() <= allowed
    if right.all():
        return None
    at = tuple((~right).nonzero()[0].tolist())
    return f"{int((~right).sum())} of {right.numel()} elements: {list(at)} is {got[at]}, PyTorch's {own[at]}, " \
           f"in float64 {precise[at]}"


def same(a, b):
    return len(a) == len(b) and all(x.dtype == y.dtype and x.shape == y.shape and bool(((x == y) | ((x != x) & (y != y))).all())
                                    for x, y in zip(a, b))


def check(server, problem, tolerance):
    """Yields (way, outcome, text): "right", "refused" or "wrong". A refusal is a typed error."""
    try:
        answers = server.run(problem.case, problem.cotangents, problem.directions)
    except Ended as ended:
        yield "value", "wrong", str(ended)
        return
    for what, expected in problem.expected.items():
        eager = answers[what]
        if isinstance(eager, tuple):
            yield what, "refused", f"{eager[0]}: {eager[1]}"
            continue
        pairs = list(zip(eager, expected.own, expected.precise))
        found = [difference(*pair, tolerance) for pair in pairs] + (
            [] if len(eager) == len(expected.own) else [f"{len(eager)} results instead of {len(expected.own)}"])
        found = [text for text in found if text]
        yield what, "wrong" if found else "right", "; ".join(found)
        for way in (f"{what}, traced", f"{what}, unknown sizes"):
            if isinstance(answers[way], tuple):  # sizes may have to be known
                yield way, "refused", f"{answers[way][0]}: {answers[way][1]}"
            else:
                yield way, "right" if same(answers[way], eager) else "wrong", "other bits than eagerly"


def line_of(name, case, way, text):
    attributes = json.dumps(case.attributes)
    return f"{name}: {case} {way}: {text}" if len(attributes) < 300 else f"{name}: {case.function} {way}: {text}"
