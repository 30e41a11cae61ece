"""The counterpart of input.cc in PyTorch's DataLoader, with its protocol and names; A map
of two calls has two workers. A map after the batch takes the rows of a batch by one index operation."""

import argparse
import json
import random
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Mapped(Dataset):
    def __init__(self, x, y, function):
        self.x, self.y, self.function = x, y, function

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.function(self.x[i]), self.y[i]


class Gathered(Mapped):
    def __getitems__(self, indices):
        return self.function(self.x[indices]), self.y[indices]


def identity(x):
    return x


def light(x):
    return x.float() / 255.0


def scale(x):
    return x * 2.0 - 1.0


def heavy(x):
    planes = x.permute(2, 0, 1)
    return (planes @ planes).permute(1, 2, 0).contiguous() * 0.01


def augment(x):
    x = torch.nn.functional.pad(x.float() / 255.0, (0, 0, 4, 4, 4, 4))
    i, j = random.randrange(9), random.randrange(9)
    x = x[i:i + 32, j:j + 32]
    return torch.flip(x, (1,)) if random.random() < 0.5 else x


def read_images(folder):
    raw = torch.cat([torch.frombuffer(bytearray(open(f"{folder}/data_batch_{i}.bin", "rb").read()), dtype=torch.uint8)
                     for i in (1, 2)]).view(-1, 3073)
    return raw[:, 1:].view(-1, 3, 32, 32).permute(0, 2, 3, 1).contiguous(), raw[:, 0].long()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--files", required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sources = {"digits": lambda: (torch.randint(0, 256, (60000, 28, 28, 1), dtype=torch.uint8),
                                  torch.randint(0, 10, (60000,))),
               "large": lambda: (torch.randn(256, 224, 224, 3), torch.randint(0, 10, (256,))),
               "scalars": lambda: (torch.randn(1_000_000), torch.randint(0, 10, (1_000_000,))),
               "files": lambda: read_images(options.files)}
    functions = {"digits": light, "large": scale, "scalars": scale, "files": augment}
    batches = {"digits": 128, "large": 32, "scalars": 1024, "files": 128}
    data = {}

    def make(name):
        source, *stages = name.split()
        if source not in data:
            data[source] = sources[source]()
        maps = [i for i, stage in enumerate(stages) if stage.startswith("map")]
        function = heavy if "heavy" in stages else functions[source] if maps else identity
        gathered = maps and maps[0] > stages.index("batch")
        workers = 2 if "map2" in stages else 0
        extra = {"prefetch_factor": 2, "persistent_workers": True} if workers else {}
        if gathered:
            extra["collate_fn"] = identity
        return DataLoader((Gathered if gathered else Mapped)(*data[source], function), batch_size=batches[source],
                          shuffle="shuffle" in stages, num_workers=workers, **extra)

    for line in sys.stdin:
        seconds, name = line.split(maxsplit=1)
        loader = make(name)
        for _ in loader:  # starts the workers
            break
        examples, taken, begin = 0, 0, time.perf_counter()
        while taken < float(seconds):
            for _, labels in loader:
                examples += len(labels)
                taken = time.perf_counter() - begin
                if taken > float(seconds):
                    break
        print(json.dumps({"per_s": examples / taken}), flush=True)
        del loader  # ends the workers


if __name__ == "__main__":
    main()
