"""Linear algebra. Vectors are determined but for their signs: they are compared squared, or in products."""

import torch

from check_operations.cases import Case, need, number
from check_operations.functions import adapts, arguments


def real(s):
    need(s.input.dtype in (torch.float32, torch.float64), "another dtype")


@adapts("linalg.inv", "linalg.det", "linalg.slogdet", "linalg.svdvals")
def of_one(op, s):
    real(s)
    need(not s.args and not s.kwargs, "arguments")
    return Case(op.name, [s.input], op)


@adapts("linalg.eigvalsh", "linalg.eigh")
def eigh(op, s):
    real(s)
    (uplo,) = arguments(s, UPLO="L")
    need(uplo == "L", "the upper triangle")
    if op.name == "linalg.eigvalsh":
        return Case(op.name, [s.input], op)

    def sine(x):
        values, vectors = op(x)
        return vectors * values.sin().unsqueeze(-2) @ vectors.mT
    return Case(op.name, [s.input], sine)


@adapts("linalg.qr")
def qr(op, s):
    real(s)
    (mode,) = arguments(s, mode="reduced")
    need(mode == "reduced", "another mode")
    return Case(op.name, [s.input], lambda x: [y.square() for y in op(x)])


@adapts("linalg.svd")
def svd(op, s):
    real(s)

    def squared(x):
        u, values, vh = op(x, full_matrices=False)
        return u * values.square().unsqueeze(-2) @ vh
    return Case(op.name, [s.input], squared)


@adapts("linalg.cholesky")
def cholesky(op, s):
    real(s)
    (upper,) = arguments(s, upper=False)
    return Case(op.name, [s.input], lambda x: op(x, upper=upper), upper=upper)


@adapts("cholesky_solve")
def cholesky_solve(op, s):
    real(s)
    factor, upper = arguments(s, input2=None, upper=False)

    # PyTorch's gradient is not 0 for elements that are not read.
    def reference(b, x):
        return op(b, x.triu() if upper else x.tril(), upper=upper)
    return Case(op.name, [s.input, factor], reference, upper=upper)


@adapts("linalg.solve")
def solve(op, s):
    real(s)
    b, left = arguments(s, B=None, left=True)
    return Case(op.name, [s.input, b], lambda x, y: op(x, y, left=left), left=left)


@adapts("linalg.solve_triangular")
def solve_triangular(op, s):
    real(s)
    b, upper, left, unit = arguments(s, B=None, upper=None, left=True, unitriangular=False)
    return Case(op.name, [s.input, b], lambda x, y: op(x, y, upper=upper, left=left, unitriangular=unit),
                upper=upper, left=left, unitriangular=unit)


@adapts("linalg.pinv", "linalg.pinv.singular", "linalg.matrix_rank")
def with_tolerance(op, s):
    real(s)
    rtol, atol, tol, hermitian = arguments(s, rtol=None, atol=None, tol=None, hermitian=False)
    need(atol is None and tol is None and not hermitian and not torch.is_tensor(rtol), "another tolerance, symmetric matrices")
    need("singular" not in (op.variant_test_name or ""), "factors of a matrix")
    return Case(op.name, [s.input], lambda x: op(x, rtol=rtol), rtol=-1.0 if rtol is None else number(rtol))


@adapts("linalg.lstsq", "linalg.lstsq.grad_oriented")
def lstsq(op, s):
    real(s)
    b, _ = arguments(s, B=None, driver=None)
    need(b.dim() == s.input.dim() and min(s.input.shape) > 0, "vectors, no equations")
    return Case("linalg.lstsq", [s.input, b], lambda x, y: torch.linalg.lstsq(x, y)[0])


@adapts("linalg.matrix_norm")
def matrix_norm(op, s):
    real(s)
    order, dim, keepdim, dtype = arguments(s, ord="fro", dim=(-2, -1), keepdim=False, dtype=None)
    need(dim == (-2, -1) and dtype is None, "other axes")
    return Case(op.name, [s.input], lambda x: op(x, order, keepdim=keepdim), keepdim=keepdim,
                **({} if order == "fro" else {"ord": str(order)}))


@adapts("linalg.matrix_power")
def matrix_power(op, s):
    real(s)
    (n,) = arguments(s, n=None)
    return Case(op.name, [s.input], lambda x: op(x, n), n=n)
