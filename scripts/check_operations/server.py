"""The C++ program that runs Tandem's operations."""

import json
import os
import subprocess

import numpy
import torch

from check_operations.cases import NAMES

DTYPES = {name: dtype for dtype, name in NAMES.items()}


class Ended(Exception):
    """The program ended, in the way and with the status of the message."""


class Server:
    def __init__(self, program):
        self.program, self.process = program, None

    def run(self, case, cotangents, directions):
        """{way: a list of tensors, or (kind of error, message)}. Ways are "value", "gradient", "second"; each also with
        ", traced" and ", unknown sizes"."""
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen([self.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            env={"OMP_NUM_THREADS": "1", **os.environ})
        request = {"function": case.function, "attributes": case.attributes, "sources": case.sources}
        arrays = []
        for name, tensors in (("inputs", case.inputs), ("cotangents", cotangents), ("directions", directions)):
            request[name] = [[NAMES[x.dtype], list(x.shape)] for x in tensors]
            arrays += [(x.double() if x.is_floating_point() else x.long()).numpy().tobytes() for x in tensors]
        answers = {}
        try:
            self.process.stdin.write(b"".join([json.dumps(request).encode(), b"\n", *arrays]))
            self.process.stdin.flush()
            while (line := self.process.stdout.readline()) != b"\n":
                if not line:
                    raise BrokenPipeError
                answer = json.loads(line)
                answers[answer["way"]] = (answer["error"], answer["message"]) if "error" in answer else [
                    self.read(*result) for result in answer["results"]]
        except BrokenPipeError:
            raise Ended(f"the program ended with status {self.process.wait()} after {list(answers)}") from None
        return answers

    def read(self, dtype, shape):
        dtype, count = DTYPES[dtype], int(numpy.prod(shape, dtype=int))
        wire = numpy.float64 if dtype.is_floating_point else numpy.int64
        elements = numpy.frombuffer(bytearray(self.process.stdout.read(8 * count)), wire)
        return torch.from_numpy(elements.copy()).reshape(shape).to(dtype)

    def end(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait(60)
