"""The workloads of benchmarks/parameter_server.cc with TensorFlow's ParameterServerStrategy.

    tf_parameter_server.py MODEL --ps 2 --workers N [--steps 200] [--cycles 5]

Starts the servers and workers as processes. Needs tensorflow and tf_keras (Keras 3 has no support for parameter
servers). Every task computes with one thread. Prints one line per cycle: "steps_per_second VALUE".
"""

import argparse
import ctypes
import json
import multiprocessing
import os
import signal
import socket
import sys
import time

PR_SET_PDEATHSIG = 1
prctl = ctypes.CDLL(None).prctl


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def import_tensorflow():
    os.environ.update({"TF_CPP_MIN_LOG_LEVEL": "3", "TF_USE_LEGACY_KERAS": "1", "CUDA_VISIBLE_DEVICES": "",
                       "GRPC_FAIL_FAST": "use_caller"})
    import tensorflow as tf
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    return tf


def serve(spec, kind, index):
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    tf = import_tensorflow()
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=2)
    tf.distribute.Server(tf.train.ClusterSpec(spec), job_name=kind, task_index=index, protocol="grpc",
                         config=config).join()


def workload(tf, name):
    keras = tf.keras
    if name == "mlp512":
        model = keras.Sequential([keras.layers.Dense(512, activation="relu", input_shape=(784,)),
                                  keras.layers.Dense(512, activation="relu"), keras.layers.Dense(10)])
        loss = lambda y, out: tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=out))

        def data():
            x = tf.random.uniform((4096, 784))
            y = tf.random.uniform((4096,), maxval=10, dtype=tf.int32)
            return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(4096).repeat().batch(64)
    else:
        rows = 2_000_000
        model = keras.Sequential([keras.layers.Embedding(rows, 16, input_length=8), keras.layers.Flatten(),
                                  keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)])
        loss = lambda y, out: tf.reduce_mean(tf.square(out - y))

        def data():
            x = tf.random.uniform((65536, 8), maxval=rows, dtype=tf.int32)
            return tf.data.Dataset.from_tensor_slices((x, tf.random.normal((65536, 1)))).shuffle(65536).repeat() \
                .batch(256)
    return model, loss, data


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=["mlp512", "recommender"])
    parser.add_argument("--ps", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--cycles", type=int, default=5)
    options = parser.parse_args()
    ports = free_ports(options.ps + options.workers + 1)
    addresses = [f"127.0.0.1:{port}" for port in ports]
    spec = {"chief": addresses[:1], "ps": addresses[1:1 + options.ps], "worker": addresses[1 + options.ps:]}
    context = multiprocessing.get_context("spawn")
    tasks = [context.Process(target=serve, args=(spec, kind, index), daemon=True)
             for kind in ("ps", "worker") for index in range(len(spec[kind]))]
    for task in tasks:
        task.start()
    os.environ["TF_CONFIG"] = json.dumps({"cluster": spec, "task": {"type": "chief", "index": 0}})
    tf = import_tensorflow()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(min_shard_bytes=8 << 20, max_shards=2)
    strategy = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model, loss_of, data = workload(tf, options.model)
        optimizer = tf.keras.optimizers.legacy.SGD(0.01)
    batches = iter(coordinator.create_per_worker_dataset(data))

    @tf.function
    def step(iterator):
        def on_replica(x, y):
            with tf.GradientTape() as tape:
                loss = loss_of(y, model(x, training=True))
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
            return loss
        return strategy.run(on_replica, args=next(iterator))

    def run(count):
        for _ in range(count):
            last = coordinator.schedule(step, args=(batches,))
        coordinator.join()
        return last

    run(max(options.steps // 5, 1))
    for _ in range(options.cycles):
        begin = time.perf_counter()
        last = run(options.steps)
        print("steps_per_second", options.steps / (time.perf_counter() - begin), flush=True)
    print("loss", float(last.fetch()), file=sys.stderr)
    sys.stderr.flush()
    for task in tasks:
        task.kill()  # TensorFlow's servers never end
    os._exit(0)


if __name__ == "__main__":
    main()
