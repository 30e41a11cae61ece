"""The cases that PyTorch's databases of operations and modules give."""

import torch
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.opinfo.core import DecorateInfo

from check_operations import array_functions, functions, linalg, modules, torch_functions  # noqa: F401: add to functions.ADAPTERS
from check_operations.cases import NAMES, Unmapped

# Relative and absolute tolerances of torch.testing.
TOLERANCES = {torch.float32: (1.3e-6, 1e-5), torch.float64: (1e-7, 1e-7), torch.float16: (1e-3, 1e-5),
              torch.bfloat16: (1.6e-2, 1e-5)}
MAX_ELEMENTS = 5000  # of a tensor


def tolerance_of(op, dtype):
    """As wide as PyTorch's own test of the operation."""
    rtol, atol = TOLERANCES.get(dtype, (0, 0))
    for info in op.decorators:
        if isinstance(info, DecorateInfo) and info.device_type in (None, "cpu"):
            for override in info.decorators:
                if isinstance(override, toleranceOverride) and dtype in override.d:
                    rtol, atol = max(rtol, override.d[dtype].rtol), max(atol, override.d[dtype].atol)
    return rtol, atol


def adapted(make):
    """The case that `make` returns, or None if Tandem or PyTorch cannot run it."""
    try:
        case = make()
        return case if all(x.numel() <= MAX_ELEMENTS for x in case.inputs) else None
    except (Unmapped, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        return None


def operations(pattern):
    """Yields (name, dtype, tolerance, cases)."""
    for op in op_db:
        name = functions.name_of(op)
        if name not in functions.ADAPTERS or not pattern.search(name):
            continue
        for dtype in (dtype for dtype in NAMES if dtype in op.dtypes):
            torch.manual_seed(1)
            yield name, dtype, tolerance_of(op, dtype), (
                adapted(lambda: functions.ADAPTERS[name](op, sample)) for sample in samples_of(op, dtype))


def samples_of(op, dtype):
    for make in (op.sample_inputs, op.reference_inputs):
        try:
            yield from make("cpu", dtype, requires_grad=False)
        except (RuntimeError, TypeError, NotImplementedError):  # some have no samples of some dtypes
            pass


def bad_samples(pattern):
    """Yields (name, case, PyTorch's message) of arguments that PyTorch refuses."""
    for op in op_db:
        name = functions.name_of(op)
        if name not in functions.ADAPTERS or not pattern.search(name) or not op.error_inputs_func:
            continue
        for bad in op.error_inputs("cpu"):
            case = adapted(lambda: functions.ADAPTERS[name](op, bad.sample_input))
            if case:
                yield name, case, str(bad.error_regex)


def layers(pattern):
    """As operations()."""
    for info in module_db:
        name = info.name.removeprefix("nn.")
        if name not in modules.ADAPTERS or not pattern.search(info.name):
            continue
        for dtype in (torch.float32, torch.float64):
            def cases():
                for training in (False, True):
                    torch.manual_seed(1)
                    for made in info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=False,
                                                        training=training):
                        yield adapted(lambda: modules.case_of(name, made, dtype, training))
            yield info.name, dtype, TOLERANCES[dtype], cases()
