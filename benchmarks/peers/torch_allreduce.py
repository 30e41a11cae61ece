"""PyTorch's all-reduce between processes, measured as allreduce.cc is: one JSON line per size.

    torch_allreduce.py [--backend gloo] [--ranks 2] [--seconds 0.5] [--bytes N]
    link --mbit 1000 torch_allreduce.py --store FOLDER    (one rank, where RANK is set)
"""

import argparse
import json
import os
import statistics
import tempfile
import time

SIZES = [4 << 10, 64 << 10, 1 << 20, 4 << 20, 25 << 20, 100 << 20]


def run_rank(rank, options, store):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(options.backend, init_method=f"file://{store}", rank=rank, world_size=options.ranks)
    for size in [options.bytes] if options.bytes else SIZES:
        values = torch.arange(size // 4, dtype=torch.float32) % 13 - 6

        def run(times):
            dist.barrier()
            begin = time.perf_counter()
            for _ in range(times):
                dist.all_reduce(values)
            return (time.perf_counter() - begin) / times

        run(3)
        times = torch.tensor(max(3, int(options.seconds / 5 / run(3))))
        dist.broadcast(times, 0)
        us = statistics.median(run(int(times)) for _ in range(5)) * 1e6
        if rank == 0:
            print(json.dumps({"program": f"torch_{options.backend}", "ranks": options.ranks, "bytes": size,
                              "plain_us": us, "plain_gbps": size / us * 1e-3}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--bytes", type=int, default=0)
    parser.add_argument("--store", help="a folder that the ranks share")
    options = parser.parse_args()
    if "RANK" in os.environ:
        run_rank(int(os.environ["RANK"]), options, os.path.join(options.store, "store"))
        return
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(options.ranks):
            child = os.fork()
            if child == 0:
                run_rank(rank, options, os.path.join(folder, "store"))
                os._exit(0)
            children.append(child)
        failed = [child for child in children if os.waitpid(child, 0)[1] != 0]
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
