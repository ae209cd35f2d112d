#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes five made-up traces, of kinds that the recorded ones lack, to try a policy's defaults on.

usage: made_traces.py FOLDER [SEED]

server1 and server4 (continuous batching on one and four streams, KV concatenated each step), unet
(images of many sizes), ragged (training on batches of varying length), overlap (buffers that two
streams use). The same seed gives the same traces. Nobody recorded them: real programs differ.
"""
import pathlib
import random
import sys

MIB = 1 << 20


class Trace:
    def __init__(self):
        self.time_us = 0
        self.count = 0
        self.rows = ["t_us,op,id,bytes,stream"]

    def allocate(self, size, stream=0):
        self.count += 1
        self.rows.append(f"{self.time_us},a,{self.count},{int(size)},{stream}")
        return self.count

    def free(self, block):
        self.rows.append(f"{self.time_us},f,{block},,")

    def record(self, block, stream):
        self.rows.append(f"{self.time_us},r,{block},,{stream}")


def make_server(choice, streams):
    trace = Trace()
    for _ in range(200):
        trace.allocate(choice.choice([8, 16, 32, 64]) * MIB)
    requests = []
    for step in range(4000):
        trace.time_us += 2000
        stream = step % streams
        if len(requests) < 24 and choice.random() < 0.3:
            requests.append({"stream": stream, "tokens": int(choice.lognormvariate(6, 0.8)) + 16,
                             "left": int(choice.expovariate(1 / 150)) + 8, "cache": None})
        scratch = []
        for request in [r for r in requests if r["stream"] == stream]:
            cache = trace.allocate(request["tokens"] * 32768, stream)
            if request["cache"] is not None:
                trace.free(request["cache"])
            request["cache"] = cache
            request["tokens"] += 1
            request["left"] -= 1
            scratch.append(trace.allocate(request["tokens"] * 8192, stream))
            scratch.append(trace.allocate(choice.randint(1, 64) * 1024, stream))
        for block in scratch:
            trace.free(block)
        for request in [r for r in requests if r["left"] <= 0]:
            if request["cache"] is not None:
                trace.free(request["cache"])
            requests.remove(request)
    return trace


def make_unet(choice):
    trace = Trace()
    for _ in range(150):
        trace.allocate(choice.choice([4, 8, 20, 40]) * MIB)
    for _ in range(120):
        height = choice.choice(range(512, 1600, 64))
        width = choice.choice(range(512, 1600, 64))
        batch = choice.choice([1, 1, 2, 4])
        for _ in range(10):
            skips = []
            for depth in range(4):
                trace.time_us += 1500
                pixels = (height >> (3 + depth)) * (width >> (3 + depth))
                size = batch * (320 << min(depth, 2)) * pixels * 2
                for _ in range(3):
                    workspace = trace.allocate(size * 9 // 4 + choice.randint(0, MIB))
                    skips.append(trace.allocate(size))
                    trace.free(workspace)
            current = trace.allocate(batch * 1280 * (height >> 6) * (width >> 6) * 2)
            while skips:
                trace.time_us += 700
                growth = choice.randint(1, 8) * batch * (height * width) // 4
                output = trace.allocate(2 * MIB + growth)
                trace.free(skips.pop())
                trace.free(current)
                current = output
            trace.free(current)
    return trace


def make_ragged(choice):
    trace = Trace()
    for _ in range(100):
        trace.allocate(24 * MIB)
    for _ in range(400):
        tokens = choice.randint(2000, 16000)
        kept = []
        for _ in range(24):
            trace.time_us += 600
            kept.append(trace.allocate(tokens * 4096))
            scratch = trace.allocate(tokens * 12288)
            kept.append(trace.allocate(tokens * 16384))
            trace.free(scratch)
        for _ in range(24):
            trace.time_us += 900
            gradient = trace.allocate(tokens * 16384)
            trace.free(kept.pop())
            trace.free(kept.pop())
            trace.free(gradient)
    return trace


def make_overlap(choice):
    trace = Trace()
    for _ in range(64):
        trace.allocate(32 * MIB)
    for _ in range(3000):
        trace.time_us += 1500
        tokens = choice.randint(256, 4096)
        gathered = trace.allocate(tokens * 16384, 0)
        trace.record(gathered, 1)
        sent = trace.allocate(tokens * 8192, 1)
        trace.record(sent, 0)
        scratch = trace.allocate(tokens * 4096, 0)
        trace.free(gathered)
        trace.free(scratch)
        trace.time_us += 300
        trace.free(sent)
    return trace


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    makers = {"server1": lambda choice: make_server(choice, 1),
              "server4": lambda choice: make_server(choice, 4),
              "unet": make_unet, "ragged": make_ragged, "overlap": make_overlap}
    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, make) in enumerate(makers.items(), start=1):
        trace = make(random.Random(seed + number))
        (folder / f"{name}.csv").write_text("\n".join(trace.rows) + "\n")


if __name__ == "__main__":
    main()
