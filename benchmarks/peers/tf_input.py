"""The counterpart of input.cc in tf.data, with its protocol and names."""

import argparse
import json
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf


def light(x, y):
    return tf.cast(x, tf.float32) / 255.0, y


def scale(x, y):
    return x * 2.0 - 1.0, y


def heavy(x, y):
    planes = tf.transpose(x, [2, 0, 1])
    return tf.transpose(tf.matmul(planes, planes), [1, 2, 0]) * 0.01, y


def augment(x, y):
    x = tf.pad(tf.cast(x, tf.float32) / 255.0, [[4, 4], [4, 4], [0, 0]])
    return tf.image.random_flip_left_right(tf.image.random_crop(x, (32, 32, 3))), y


def parse(record):
    record = tf.io.decode_raw(record, tf.uint8)
    return tf.transpose(tf.reshape(record[1:], (3, 32, 32)), (1, 2, 0)), tf.cast(record[0], tf.int64)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--files", required=True)
    options = parser.parse_args()
    tf.config.set_visible_devices([], "GPU")
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(options.threads)
    random, slices = np.random.default_rng(1), tf.data.Dataset.from_tensor_slices
    sources = {
        "digits": lambda: slices((random.integers(0, 256, (60000, 28, 28, 1), dtype=np.uint8), random.integers(0, 10, 60000))),
        "large": lambda: slices((random.standard_normal((256, 224, 224, 3), dtype=np.float32), random.integers(0, 10, 256))),
        "scalars": lambda: slices((random.standard_normal(1_000_000, dtype=np.float32), random.integers(0, 10, 1_000_000))),
        "files": lambda: slices([f"{options.files}/data_batch_{i}.bin" for i in (1, 2)]).interleave(
            lambda path: tf.data.FixedLengthRecordDataset(path, 3073), cycle_length=1).map(parse)}
    functions = {"digits": light, "large": scale, "scalars": scale, "files": augment}
    batches = {"digits": 128, "large": 32, "scalars": 1024, "files": 128}
    buffers = {"digits": 10000, "large": 256, "scalars": 100000, "files": 10000}
    data = {}

    def make(name):
        source, *stages = name.split()
        if source not in data:
            data[source] = sources[source]()
        function = heavy if "heavy" in stages else functions[source]
        pipeline = data[source]
        for stage in stages:
            if stage == "shuffle":
                pipeline = pipeline.shuffle(buffers[source])
            elif stage == "batch":
                pipeline = pipeline.batch(batches[source])
            elif stage == "prefetch":
                pipeline = pipeline.prefetch(2)
            elif stage != "heavy":
                pipeline = pipeline.map(function, 2 if stage == "map2" else None)
        return pipeline

    for line in sys.stdin:
        seconds, name = line.split(maxsplit=1)
        pipeline = make(name)
        for _ in pipeline.take(1):
            pass
        examples, taken, begin = 0, 0, time.perf_counter()
        while taken < float(seconds):
            for x, _ in pipeline:
                examples += x.shape[0]
                taken = time.perf_counter() - begin
                if taken > float(seconds):
                    break
        print(json.dumps({"per_s": examples / taken}), flush=True)


if __name__ == "__main__":
    main()
