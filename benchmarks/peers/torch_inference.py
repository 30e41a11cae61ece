"""The counterpart of inference.cc, with its protocol: forward passes of a case in PyTorch or ONNX Runtime. Ways: eager
(inference_mode, channels_last), frozen (torch.compile with constant weights), onnx (ONNX Runtime on the model that
PyTorch exports, its inputs and outputs bound before the calls)."""

import argparse
import json
import pathlib
import sys
import tempfile
import threading
import time

import torch

import torch_step


def compute(model, case, scope=torch.inference_mode):
    images = len(case.example) == 3
    if images:
        model = model.to(memory_format=torch.channels_last)

    def bind(x):
        x = x.contiguous(memory_format=torch.channels_last) if images else x

        def run():
            with scope():
                return model(x)
        return run
    return bind


def frozen(model, case):
    torch._inductor.config.freezing = True  # does without inference_mode
    return compute(torch.compile(model, dynamic=False), case, torch.no_grad)


def onnx(model, case, threads):
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder) / "model.onnx")
        example = torch_step.make_pool(case, 2, "cpu")[0][0].contiguous()
        torch.onnx.export(model, (example,), path, input_names=["x"], output_names=["y"], dynamo=True,
                          dynamic_shapes=({0: torch.export.Dim("batch")},), external_data=False, verbose=False)
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])

    def bind(x):
        binding = session.io_binding()
        binding.bind_cpu_input("x", x.contiguous().numpy())
        binding.bind_output("y")

        def run():
            session.run_with_iobinding(binding)
            return binding
        return run
    return bind


def numbers_of(result):
    if not isinstance(result, torch.Tensor):
        result = torch.from_numpy(result.copy_outputs_to_cpu()[0])
    return result.reshape(-1)[:2].tolist()


def time_for(seconds, calls):
    """As report.h: milliseconds per call in the median of blocks, and the number of calls."""
    blocks, begin = [], time.perf_counter()
    while True:
        block = time.perf_counter()
        for call in calls:
            call()
        now = time.perf_counter()
        blocks.append((now - block) / len(calls) * 1e3)
        if now - begin >= seconds:
            return sorted(blocks)[len(blocks) // 2], len(calls) * len(blocks)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", required=True)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    case = torch_step.find_case(options.case, False)
    model = case.make().eval()
    torch_step.set_random_weights(model)
    ways = {"eager": lambda: compute(model, case), "frozen": lambda: frozen(model, case),
            "onnx": lambda: onnx(model, case, options.threads)}
    made = {}
    for line in sys.stdin:
        way, batch, seconds, callers = line.split()
        if way not in made:
            made[way] = ways[way]()
        calls = [made[way](x) for x, _ in torch_step.make_pool(case, int(batch), "cpu")]
        numbers = numbers_of(calls[0]())
        results = [None] * int(callers)

        def run(i, limit):
            results[i] = time_for(limit, calls)

        def run_all(limit):
            others = [threading.Thread(target=run, args=(i, limit)) for i in range(1, len(results))]
            for other in others:
                other.start()
            run(0, limit)
            for other in others:
                other.join()

        run_all(float(seconds) / 4)
        begin = time.perf_counter()
        run_all(float(seconds))
        taken = time.perf_counter() - begin
        print(json.dumps({"ms": results[0][0], "ms_per_call": taken / sum(count for _, count in results) * 1e3,
                          "result": numbers}), flush=True)


if __name__ == "__main__":
    main()
