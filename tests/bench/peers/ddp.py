"""Peer of the scaling benchmark: peers/decoder.py under DistributedDataParallel, each process started by torchrun.

    python -m torch.distributed.run --standalone --nproc-per-node 2 peers/ddp.py --rows 8000 --precision bf16     one line of JSON
"""
import argparse
import json
import time

import decoder
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    decoder.add_measure_options(parser)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    model = decoder.Decoder(args.rows, n=args.length)
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True, broadcast_buffers=False)
    optimizer = decoder.optimizer_of(parallel, 5e-4)
    batch = args.batch_tokens // args.length // dist.get_world_size()
    torch.manual_seed(1 + dist.get_rank())
    data = torch.randint(args.rows, (args.warm + args.updates, batch, args.length + 1))
    for i, rows in enumerate(data):
        if i == args.warm:
            dist.barrier()
            start_time = time.perf_counter()
        decoder.update(parallel, optimizer, rows[:, :-1], rows[:, 1:], args.precision == "bf16")
    dist.barrier()
    tokens = args.updates * batch * args.length * dist.get_world_size()
    if dist.get_rank() == 0:
        print(json.dumps({"tokens_per_second": tokens / (time.perf_counter() - start_time), "peak": decoder.peak_bytes()}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
