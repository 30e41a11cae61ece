"""One training step of a case in JAX, compiled by XLA and timed; prints a JSON line. With --replicas N, N
devices take the case's batch each, and gradients are summed between them.

The counterpart of train_step.cc with --device tpu: the same models, sizes and data, and SGD with momentum."""

import argparse
import json
import math
import os
import time


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", default="mlp64")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0)
    known, _ = parser.parse_known_args()
    return known


OPTIONS = parse()
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={OPTIONS.replicas}"

import jax  # noqa: E402, which reads XLA_FLAGS
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402

RNG = np.random.default_rng(1)
HIGHEST = lax.Precision.HIGHEST


def kernel(*shape):
    return (RNG.random(shape, dtype=np.float32) - 0.5) * math.sqrt(12 / math.prod(shape[:-1]))


def dense(inputs, outputs):
    return {"w": kernel(inputs, outputs), "b": np.zeros(outputs, np.float32)}


def apply_dense(p, x):
    return jnp.matmul(x, p["w"], precision=HIGHEST) + p["b"]


def conv(x, w, stride=1, padding="SAME"):
    return lax.conv_general_dilated(x, w, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"),
                                    precision=HIGHEST)


def mlp(width):
    weights = [dense(784, width), dense(width, width), dense(width, 10)]

    def forward(p, x):
        x = jax.nn.relu(apply_dense(p[0], x))
        x = jax.nn.relu(apply_dense(p[1], x))
        return apply_dense(p[2], x)

    return weights, forward


def lenet():
    weights = {"c1": kernel(3, 3, 1, 32), "b1": np.zeros(32, np.float32), "c2": kernel(3, 3, 32, 64),
               "b2": np.zeros(64, np.float32), "d1": dense(9216, 128), "d2": dense(128, 10)}

    def forward(p, x):
        x = jax.nn.relu(conv(x, p["c1"], padding="VALID") + p["b1"])
        x = jax.nn.relu(conv(x, p["c2"], padding="VALID") + p["b2"])
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        x = jax.nn.relu(apply_dense(p["d1"], x.reshape(x.shape[0], -1)))
        return apply_dense(p["d2"], x)

    return weights, forward


def resnet20():
    weights = []

    def add(size, inputs, outputs):
        weights.append({"w": kernel(size, size, inputs, outputs), "gamma": np.ones(outputs, np.float32),
                        "beta": np.zeros(outputs, np.float32)})
        return len(weights) - 1

    plan = [("stem", add(3, 3, 16))]
    inputs = 16
    for filters in (16, 32, 64):
        for block in range(3):
            stride = 2 if block == 0 and filters != 16 else 1
            first, second = add(3, inputs, filters), add(3, filters, filters)
            short = add(1, inputs, filters) if stride != 1 else None
            plan.append((stride, first, second, short))
            inputs = filters
    head = dense(64, 10)

    def normalised(p, x, stride):
        x = conv(x, p["w"], stride)
        mean = x.mean((0, 1, 2))
        variance = jnp.square(x - mean).mean((0, 1, 2))
        return (x - mean) * lax.rsqrt(variance + 1e-5) * p["gamma"] + p["beta"]

    def forward(p, x):
        p, head_weights = p
        x = jax.nn.relu(normalised(p[0], x, 1))
        for stride, first, second, short in plan[1:]:
            y = normalised(p[second], jax.nn.relu(normalised(p[first], x, stride)), 1)
            x = jax.nn.relu(y + (normalised(p[short], x, stride) if short is not None else x))
        return apply_dense(head_weights, x.mean((1, 2)))

    return (weights, head), forward


def transformer(blocks, width, heads, length, vocabulary):
    norm = {"gamma": np.ones(width, np.float32), "beta": np.zeros(width, np.float32)}
    block = [{"n1": norm, "q": dense(width, width), "k": dense(width, width), "v": dense(width, width),
              "o": dense(width, width), "n2": norm, "d1": dense(width, 4 * width), "d2": dense(4 * width, width)}
             for _ in range(blocks)]
    weights = {"tokens": kernel(vocabulary, width), "positions": kernel(length, width), "blocks": block, "norm": norm,
               "head": kernel(width, vocabulary)}
    mask = jnp.tril(jnp.ones((length, length), bool))

    def normalise(p, x):
        mean = x.mean(-1, keepdims=True)
        variance = jnp.square(x - mean).mean(-1, keepdims=True)
        return (x - mean) * lax.rsqrt(variance + 1e-5) * p["gamma"] + p["beta"]

    def attend(p, x):
        shape = (*x.shape[:2], heads, width // heads)
        q, k, v = (apply_dense(p[name], x).reshape(shape) for name in "qkv")
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, precision=HIGHEST) / math.sqrt(width // heads)
        p_scores = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), -1)
        return apply_dense(p["o"], jnp.einsum("bhqk,bkhd->bqhd", p_scores, v, precision=HIGHEST).reshape(x.shape))

    def forward(p, x):
        x = p["tokens"][x] + p["positions"]
        for b in p["blocks"]:
            x = x + attend(b, normalise(b["n1"], x))
            hidden = jax.nn.gelu(apply_dense(b["d1"], normalise(b["n2"], x)), approximate=False)
            x = x + apply_dense(b["d2"], hidden)
        return jnp.matmul(normalise(p["norm"], x), p["head"], precision=HIGHEST)

    return weights, forward


def find_case(name):
    """(weights, forward), shape of an example, batch, classes, vocabulary."""
    if name in ("mlp64", "mlp512"):
        return mlp(512), (784,), int(name[3:]), 10, 0
    if name == "lenet64":
        return lenet(), (28, 28, 1), 64, 10, 0
    if name == "resnet20":
        return resnet20(), (32, 32, 3), 128, 10, 0
    if name == "transformer4":
        return transformer(4, 256, 4, 128, 1000), (128,), 16, 1000, 1000
    raise SystemExit(f"jax_step: no case {name}")


(WEIGHTS, FORWARD), EXAMPLE, BATCH, CLASSES, VOCABULARY = find_case(OPTIONS.case)


def make_batch():
    shape = (OPTIONS.replicas, BATCH, *EXAMPLE)
    labels = shape if VOCABULARY else shape[:2]
    x = RNG.integers(0, VOCABULARY, shape) if VOCABULARY else \
        ((RNG.random(shape, dtype=np.float32) - 0.5) * math.sqrt(12)).astype(np.float32)
    return x, RNG.integers(0, CLASSES, labels)


def loss_of(weights, x, y):
    logits = FORWARD(weights, x)
    logits = logits.reshape(-1, logits.shape[-1])
    losses = jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, y.reshape(-1, 1), -1)[:, 0]
    return losses.sum() / (losses.size * OPTIONS.replicas)


def step(weights, momentum, x, y):
    loss, gradients = jax.value_and_grad(loss_of)(weights, x, y)
    if OPTIONS.replicas > 1:
        gradients = lax.psum(gradients, "replica")
    momentum = jax.tree.map(lambda m, g: 0.9 * m - 0.01 * g, momentum, gradients)
    return jax.tree.map(jnp.add, weights, momentum), momentum, loss


def main():
    pool = [make_batch() for _ in range(4)]
    weights, momentum = WEIGHTS, jax.tree.map(np.zeros_like, WEIGHTS)
    if OPTIONS.replicas > 1:
        run = jax.pmap(step, "replica", donate_argnums=(0, 1))
        copies = lambda a: np.broadcast_to(a, (OPTIONS.replicas, *a.shape))  # noqa: E731
        weights, momentum = jax.tree.map(copies, weights), jax.tree.map(copies, momentum)
    else:
        run = jax.jit(step, donate_argnums=(0, 1))
        pool = [(x[0], y[0]) for x, y in pool]
    weights, momentum = jax.device_put(weights) if OPTIONS.replicas == 1 else weights, momentum

    def measure():
        nonlocal weights, momentum
        times, i = [], 0
        begin = time.perf_counter()
        while time.perf_counter() - begin < OPTIONS.seconds or i < 3:
            start = time.perf_counter()
            weights, momentum, loss = run(weights, momentum, *pool[i % 4])
            jax.block_until_ready(loss)
            times.append(time.perf_counter() - start)
            i += 1
        times.sort()
        print(json.dumps({"program": "jax", "case": OPTIONS.case, "ms": times[len(times) // 2] * 1e3, "version": jax.__version__}), flush=True)

    for i in range(2):
        weights, momentum, loss = run(weights, momentum, *pool[i])
    jax.block_until_ready(loss)
    measure()


main()
