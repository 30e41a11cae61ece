"""One training step of a case in TensorFlow, timed; prints a JSON line. The step is a tf.function, with --xla compiled
by XLA. bfloat16 is Keras's policy mixed_bfloat16.

The counterpart of train_step.cc: the same models, weights, data and options."""

import argparse
import json
import math
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from keras import layers


def mlp(width):
    return keras.Sequential([keras.Input((784,)), layers.Dense(width, "relu"), layers.Dense(width, "relu"),
                             layers.Dense(10)])


def lenet():
    return keras.Sequential([
        keras.Input((28, 28, 1)), layers.Conv2D(32, 3, activation="relu"), layers.Conv2D(64, 3, activation="relu"),
        layers.MaxPooling2D(2), layers.Flatten(), layers.Dense(128, "relu"), layers.Dense(10)])


def convolve(x, filters, kernel, stride):
    x = layers.Conv2D(filters, kernel, strides=stride, padding="same", use_bias=False)(x)
    return layers.BatchNormalization(epsilon=1e-5)(x)


def resnet20():
    inputs = keras.Input((32, 32, 3))
    x = layers.ReLU()(convolve(inputs, 16, 3, 1))
    for filters in (16, 32, 64):
        for block in range(3):
            stride = 2 if block == 0 and filters != 16 else 1
            y = layers.ReLU()(convolve(x, filters, 3, stride))
            y = convolve(y, filters, 3, 1)
            if stride != 1:
                x = convolve(x, filters, 1, stride)
            x = layers.ReLU()(layers.Add()([y, x]))
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


def resnet50(size):
    inputs = keras.Input((size, size, 3))
    x = layers.MaxPooling2D(2)(layers.ReLU()(convolve(inputs, 64, 7, 2)))
    for filters, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            stride = 2 if block == 0 and filters != 64 else 1
            y = layers.ReLU()(convolve(x, filters, 1, 1))
            y = layers.ReLU()(convolve(y, filters, 3, stride))
            y = convolve(y, 4 * filters, 1, 1)
            if block == 0:
                x = convolve(x, 4 * filters, 1, stride)
            x = layers.ReLU()(layers.Add()([y, x]))
    return keras.Model(inputs, layers.Dense(1000)(layers.GlobalAveragePooling2D()(x)))


class Positions(layers.Layer):
    """A learned vector per position."""

    def build(self, shape):
        self.embeddings = self.add_weight(shape=shape[1:], initializer="zeros", name="embeddings")

    def call(self, x):
        return x + self.embeddings


def transformer(blocks, width, heads, length, vocabulary):
    inputs = keras.Input((length,), dtype="int64")
    x = Positions()(layers.Embedding(vocabulary, width)(inputs))
    for _ in range(blocks):
        y = layers.LayerNormalization(epsilon=1e-5)(x)
        x = layers.Add()([x, layers.MultiHeadAttention(heads, width // heads)(y, y, use_causal_mask=True)])
        y = layers.LayerNormalization(epsilon=1e-5)(x)
        x = layers.Add()([x, layers.Dense(width)(layers.Dense(4 * width, "gelu")(y))])
    return keras.Model(inputs, layers.Dense(vocabulary, use_bias=False)(layers.LayerNormalization(epsilon=1e-5)(x)))


class Case:
    """As in cases.h."""

    def __init__(self, make, example, batch, classes=10, vocabulary=0):
        self.make, self.example, self.batch, self.classes, self.vocabulary = make, example, batch, classes, vocabulary


def find_case(name, tiny):
    if name in ("mlp64", "mlp512"):
        return Case(lambda: mlp(32 if tiny else 512), (784,), int(name[3:]))
    if name == "lenet64":
        return Case(lenet, (28, 28, 1), 8 if tiny else 64)
    if name == "resnet20":
        return Case(resnet20, (32, 32, 3), 2 if tiny else 128)
    if name == "resnet50":
        size = 64 if tiny else 224
        return Case(lambda: resnet50(size), (size, size, 3), 4 if tiny else 8, 1000)
    if name == "transformer4":
        blocks, width, heads, length, vocabulary = (2, 32, 2, 16, 61) if tiny else (4, 256, 4, 128, 1000)
        return Case(lambda: transformer(blocks, width, heads, length, vocabulary), (length,), 4 if tiny else 16,
                    vocabulary, vocabulary)
    sys.exit(f"tf_step: no case {name}")


# ---- the numbers of random_numbers.h --------------------------------------------------------------------------


def random_bits(stream, shape):
    """Numbers 0, 1, ... of a stream, 24 bits each."""
    x = np.arange(math.prod(shape), dtype=np.uint32) * np.uint32(0x9E3779B9)
    x += np.uint32(stream * 0x85EBCA6B & 0xFFFFFFFF)
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x7FEB352D)
    x ^= x >> np.uint32(15)
    x *= np.uint32(0x846CA68B)
    return ((x ^ (x >> np.uint32(16))) >> np.uint32(8)).reshape(shape)


def random_uniform(stream, shape, length):
    return (random_bits(stream, shape).astype(np.float32) * np.float32(2**-24) - np.float32(0.5)) * np.float32(length)


def set_random_weights(variables):
    for stream, variable in enumerate(variables, 1):
        shape = variable.shape
        length = 0.02 * math.sqrt(12)
        if variable.path.endswith("/kernel"):
            # [inputs, heads, depth]: outputs in two axes.
            heads = len(shape) == 3 and not variable.path.endswith("attention_output/kernel")
            outputs = shape[1] * shape[2] if heads else shape[-1]
            length = math.sqrt(12 / (math.prod(shape) / outputs))
        elif not variable.path.endswith("/embeddings"):
            continue
        variable.assign(random_uniform(stream, shape, length))


def make_pool(case):
    pool = []
    for i in range(4):
        stream = 100_000 + 2 * i
        shape = (case.batch, *case.example)
        if case.vocabulary:
            x = (random_bits(stream, shape) % case.vocabulary).astype(np.int64)
        else:
            x = random_uniform(stream, shape, math.sqrt(12))
        labels = shape if case.vocabulary else (case.batch,)
        y = (random_bits(stream + 1, labels) % case.classes).astype(np.int64)
        pool.append((tf.constant(x), tf.constant(y)))
    return pool


def peak_mib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="bfloat16: mixed_bfloat16")
    parser.add_argument("--tiny", type=int, default=0, help="1: a small version of the model")
    parser.add_argument("--check", type=int, default=0, help="steps whose losses are printed, before any is timed")
    parser.add_argument("--xla", action="store_true", help="compile the step with XLA")
    options = parser.parse_args()
    started = float(os.environ.get("TANDEM_BENCH_STARTED", "nan"))
    tf.config.set_visible_devices([], "GPU")
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.ones(1) + tf.ones(1)
    startup_ms = (time.clock_gettime(time.CLOCK_MONOTONIC) - started) * 1e3
    if options.dtype == "bfloat16":
        keras.mixed_precision.set_global_policy("mixed_bfloat16")

    case = find_case(options.case, options.tiny)
    model = case.make()
    variables = model.trainable_variables
    set_random_weights(variables)
    optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
    optimizer.build(variables)
    pool = make_pool(case)

    @tf.function(jit_compile=options.xla)
    def step(x, y):
        with tf.GradientTape() as tape:
            logits = tf.cast(model(x, training=True), tf.float32)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    def time_for(seconds):
        """As report.h: milliseconds per step in the median of blocks of four steps."""
        blocks, begin = [], time.perf_counter()
        while True:
            block = time.perf_counter()
            for i in range(4):
                loss = step(*pool[i])
            loss.numpy()
            now = time.perf_counter()
            blocks.append((now - block) / 4 * 1e3)
            if now - begin >= seconds:
                return sorted(blocks)[len(blocks) // 2]

    losses = [float(step(*pool[i % len(pool)])) for i in range(options.check)]
    time_for(min(1.0, options.seconds / 2))
    print(json.dumps({
        "program": "xla" if options.xla else "tensorflow", "version": tf.__version__, "case": options.case,
        "device": "cpu", "dtype": options.dtype, "threads": options.threads, "replicas": 1,
        "parameters": sum(math.prod(variable.shape) for variable in variables), "losses": losses,
        "ms": time_for(options.seconds), "peak_mib": peak_mib(),
        "startup_ms": None if startup_ms != startup_ms else startup_ms}), flush=True)


if __name__ == "__main__":
    main()
