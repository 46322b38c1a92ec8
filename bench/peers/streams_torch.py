"""Time of a step of PyTorch's DataLoader over the same file as bench/streams.star, with a shuffle buffer; on one thread."""
import gzip
import os
import random
import time

import torch

from figures import report

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "data", "digits.csv.gz")


class Rows(torch.utils.data.IterableDataset):
    def __iter__(self):
        buffer = []
        with gzip.open(PATH, "rt") as lines:
            for line in lines:
                numbers = [float(cell) for cell in line.split(",")]
                row = torch.tensor(numbers[:-1]), int(numbers[-1])
                if len(buffer) < 1000:
                    buffer.append(row)
                    continue
                i = random.randrange(1000)
                yield buffer[i]
                buffer[i] = row
        random.shuffle(buffer)
        yield from buffer


def epochs(count):
    steps = 0
    for _ in range(count):
        for x, y in torch.utils.data.DataLoader(Rows(), batch_size=64):
            steps += 1
    return steps


epochs(1)
started = time.perf_counter()
steps = epochs(5)
report("streaming loader step", (time.perf_counter() - started) / steps * 1e3, "ms")
