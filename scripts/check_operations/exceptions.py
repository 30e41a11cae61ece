"""Where Tandem is meant to differ from PyTorch. Most of it is TensorFlow's convention."""

import re

import torch

SIXTEEN_BITS = (torch.float16, torch.bfloat16)


def has_nan(case):
    return any(x.isnan().any() for x in case.inputs if x.is_floating_point())


def equal_operands(case):
    a, b = case.inputs if len(case.inputs) == 2 else (case.inputs[0], case.attributes.get("b", case.attributes.get("a")))
    return bool((a == (b if isinstance(b, torch.Tensor) else float(b))).any())


def at_limit(case):
    return any((case.inputs[0] == float(case.attributes[key])).any() for key in ("low", "high"))


def not_positive_base(case):
    a = case.inputs[0] if "a" not in case.attributes else torch.tensor(float(case.attributes["a"]))
    return bool((a <= 0).any()) or has_nan(case)


def zero_or_nan(case):
    return bool((case.inputs[0] == 0).any()) or has_nan(case)


def improper_probabilities(case):
    return case.attributes.get("loss") == "kl" and bool((case.inputs[1] > 1).any())


def results_of(case):
    results = case.reference(*case.inputs)
    return [results] if isinstance(results, torch.Tensor) else results


def at_end_of_domain(case):
    x = case.inputs[0]
    ends = {"acosh": x <= 1, "atanh": x.abs() >= 1}.get(case.function, ~x.isfinite())
    return bool((ends | ~x.isfinite()).any())


def repeated_positions(case):
    return any(row.unique().numel() < row.numel() for row in case.inputs[1].flatten(-int(case.function[-2])).flatten(0, -2))


# Functions, ways, a condition on the case, and the reason.
RESULTS = [
    ("sign", "value", has_nan, "the sign of NaN is NaN"),
    ("abs", "gradient", has_nan, "the gradient at NaN is NaN"),
    ("maximum minimum fmax fmin", "gradient", lambda case: equal_operands(case) or has_nan(case),
     "the gradient of equal operands goes to the first one, see math.h"),
    ("F.hardshrink F.softshrink", "gradient", has_nan, "the gradient at NaN is that of x"),
    ("F.hardsigmoid", "gradient", has_nan, "the gradient at NaN is that between the limits"),
    ("acosh asinh atanh", "gradient second", lambda case: at_end_of_domain(case) or case.inputs[0].dtype in SIXTEEN_BITS,
     "made of other functions: infinite slopes are NaN, and 16-bit gradients are rounded several times"),
    ("logit", "gradient second", lambda case: bool(((case.inputs[0] <= 0) | (case.inputs[0] >= 1)).any()) or has_nan(case),
     "outside of (0, 1) the slope is that of the formula"),
    ("xlogy", "gradient second", lambda case: bool((case.inputs[1] <= 0).any()) or has_nan(case),
     "the slope is 0 where a is 0 and the logarithm infinite"),
    ("xlog1py", "gradient second", lambda case: bool((case.inputs[1] <= -1).any()) or has_nan(case),
     "the slope is 0 where a is 0 and the logarithm infinite"),
    ("entr", "gradient second", lambda case: bool((case.inputs[0] <= 0).any()) or has_nan(case),
     "below 0 the result is constant"),
    ("copysign", "gradient second", zero_or_nan, "PyTorch's second derivative at 0 is NaN; the gradient at NaN is that of the sign"),
    ("ldexp", "second", lambda case: not all(bool(x.isfinite().all()) for x in results_of(case)), "infinite results"),
    ("corrcoef", "gradient", lambda case: case.inputs[0].dtype in SIXTEEN_BITS, "differences of rounded numbers"),
    ("F.adaptive_avg_pool3d F.interpolate", "value, unknown sizes",
     lambda case: case.attributes.get("mode", "area") == "area", "equal windows of known sizes are summed in another order"),
    ("atan2 lgamma mvlgamma", "gradient second", lambda case: not all(bool(x.isfinite().all()) for x in case.inputs),
     "the slopes at infinity"),
    ("atan2", "second", lambda case: bool(((case.inputs[0] == 0) & (case.inputs[1] == 0)).any()), "PyTorch's is NaN at the origin"),
    ("polygamma digamma lgamma", "gradient second value", lambda case: bool(((case.inputs[0] <= 0) & (
        case.inputs[0] == case.inputs[0].round())).any()) or not bool(case.inputs[0].isfinite().all()),
     "PyTorch's poles are large numbers"),
    ("topk kthvalue median nanmedian mode quantile nanquantile", "gradient second", lambda case: case.inputs[0].dtype in SIXTEEN_BITS,
     "equal elements: which of them has the gradient is not defined"),
    ("logaddexp logaddexp2", "gradient second", lambda case: not all(bool((x.abs() < 700).all()) for x in case.inputs),
     "the slopes at NaN, at infinities, and where exp() is infinite"),
    ("fmod", "gradient", lambda case: True, "PyTorch's quotient is rounded before it is cut"),
    ("sinc", "second", lambda case: bool((case.inputs[0] == 0).any()), "PyTorch's second derivative at 0 is NaN"),
    ("hypot", "value gradient second", lambda case: not all(bool((x.isfinite() & (x.abs() > 1e-30)).all()) for x in case.inputs)
     or case.inputs[0].dtype in SIXTEEN_BITS, "NaN beside infinity is NaN; slopes of the smallest numbers overflow"),
    ("relu relu6", "gradient", has_nan, "the gradient at NaN is 0"),
    ("clip_by_value", "gradient", lambda case: at_limit(case) or has_nan(case),
     "the gradient is 1 at the limits and 0 at NaN, see math.h"),
    ("elu selu F.celu", "gradient", lambda case: zero_or_nan(case) or case.inputs[0].dtype in SIXTEEN_BITS,
     "the gradient comes from the result: that of selu at 0 is that of positive numbers, NaN stays NaN, and 16-bit results "
     "are rounded"),
    ("pow float_power", "gradient second", not_positive_base,
     "the gradient with respect to the exponent is 0 where the base is not positive, see math.h"),
    ("F.mish", "second", lambda case: bool((case.inputs[0].abs() > 20).any()),
     "PyTorch's second derivative of large numbers is NaN instead of 0"),
    ("norm", "second", zero_or_nan, "the second derivative at 0 is finite"),
    ("F.max_unpool1d F.max_unpool2d F.max_unpool3d", "gradient second", repeated_positions,
     "where positions repeat, the element that stays has the gradient, see unpooling_modules.h"),
    ("layer_norm", "gradient", lambda case: case.inputs[0].shape[-1] == 1, "the gradient of one element is a rounding of 0"),
    ("Loss", "gradient second", improper_probabilities, "probabilities are clipped to [epsilon, 1], as in Keras"),
]
# Patterns of the message and the functions, and the reason.
REFUSALS = [
    ("expected (a|two tensors of one) floating dtype", ".*",
     "no integers; TensorFlow has some of these for int32: matmul, relu, max_pool2d, round"),
    ("expected a floating or (signed )?integer dtype, got", ".*", "as in TensorFlow: no arithmetic of bool and no -x of uint8"),
    ("expected tensors of one dtype", ".*", "as in TensorFlow: no promotion of dtypes"),
    ("expected dtype bool", "logical_.*|reduce_a.*", "as in TensorFlow: only bool is a truth value"),
    (r"expected a number that \w+ holds", ".*", "no wrapping of numbers"),
    ("expected an exponent of at least 0", "pow", "as in TensorFlow: integers have no reciprocals"),
    (r"expected an axis (in|of) \[0, 0\)", ".*", "a scalar has no axis"),
    ("of rank 1 or more, got a scalar", ".*softmax|F.softmin|cast_softmin", "a scalar has no axis"),
    ("the elements of a symbolic tensor were asked for", "unique|nonzero|bincount|boolean_mask",
     "the elements are read: the size of the result depends on them, or the host computes it"),
    (r"expected shapes that agree except along axis|expected an axis of \[-1, 1\), got 1", "concat", "an empty vector is not neutral: PyTorch keeps it for old code"),
]
# Where unknown sizes may be refused: patterns of the message and PyTorch's names, and the reason. Elsewhere they have to
# work as known ones do.
UNKNOWN_SIZES = [
    ("the number of results depends on it", ".*", "the number of results"),
    (r"\[Squeeze\] expected axes, because sizes of shape .* are not known", ".*", "the rank of the result"),
    (r"more than one variable if their number is unknown|\[EnsureShape\] expected a tensor of shape \(1, 2\)", "cov|corrcoef",
     "the rank of the result"),
    ("the gradient depends on it", r"linalg\.(qr|svd|svdvals|matrix_norm)", "whether a matrix is tall decides the formula"),
    (r"expected a known number of channels|\[Dim\] axis \d of 'args_\d' is not known before the graph runs",
     r"nn\.(Linear|Conv2d|BatchNorm\dd|LayerNorm|Embedding)", "the shapes of variables that the test makes in the function"),
]
# Arguments that PyTorch refuses: functions, a condition on the case, and the reason.
ACCEPTED = [
    (".*", lambda case: bool({"a", "b"} & set(case.attributes)), "a number may be an operand of every binary function"),
    ("where|cross", lambda case: True, "all operands broadcast"),
    ("F.group_norm", lambda case: case.inputs[0].numel() == 0, "no elements have no moments"),
    ("F.max_pool.*", lambda case: case.inputs[0].numel() == 0, "no channels have no maxima"),
    ("reduce_max|reduce_min", lambda case: case.inputs[0].numel() == 0, "the maximum of nothing is the lowest number"),
    ("embedding_lookup", lambda case: True, "tables of every rank, as in TensorFlow"),
]


class Exceptions:
    def __init__(self):
        self.used = set()

    def cover(self, case, way, outcome, text):
        """Whether an exception covers this outcome of a case."""
        if outcome == "refused":
            found = [reason for message, functions, reason in REFUSALS
                     if re.search(message, text) and re.fullmatch(functions, case.function)]
        elif way == "bad arguments":
            found = [reason for functions, condition, reason in ACCEPTED
                     if re.fullmatch(functions, case.function) and condition(case)]
        else:
            found = [reason for functions, ways, condition, reason in RESULTS
                     if case.function in functions.split() and (way in ways.split() or way == ways) and condition(case)]
        self.used.update(found)
        return bool(found)

    def needs_known_sizes(self, name, text):
        """Whether a refusal of unknown sizes has a reason, and quotes no number that stands for one."""
        found = [reason for message, names, reason in UNKNOWN_SIZES if re.search(message, text) and re.fullmatch(names, name)]
        self.used.update(found)
        return bool(found) and not re.search(r"-\d{12}", text)

    def unused(self):
        return {entry[-1] for entry in [*RESULTS, *REFUSALS, *UNKNOWN_SIZES, *ACCEPTED]} - self.used
