# SPDX-License-Identifier: Apache-2.0
"""Two-batch overlap: while one half of a batch computes, the other half's results are exchanged.

As engines do it that serve a mixture of experts on several cards: the exchange runs on a stream of
its own, here a copy within the card, and record_stream tells the allocator that it reads what the
computing stream made. Token counts change from step to step. The host runs ahead of the GPU, and
an allocator that waits until the host sees each exchange done reserves many times what is in use.
"""
import torch

SIZES = {
    # layers, width, tokens of a half at most
    "full": (24, 4096, 6144),
    "quick": (8, 2048, 2048),
    "tiny": (2, 64, 64),
}
STEPS = {"full": 24, "quick": 8, "tiny": 3}
WARM_UP_STEPS = 2


class Workload:
    def __init__(self, device, size, scale):
        self.device = torch.device(device)
        torch.manual_seed(11)
        layers, width, most = SIZES[size]
        with self.device:
            self.weights = [torch.randn(width, width) / width**0.5 for _ in range(layers)]
        generator = torch.Generator().manual_seed(12)
        self.steps = []
        for _ in range(WARM_UP_STEPS + max(1, round(STEPS[size] * scale))):
            counts = torch.randint(most // 4, most + 1, (2,), generator=generator)
            self.steps.append([int(count) for count in counts])
        self.exchange = torch.cuda.Stream() if self.is_cuda() else None
        self.sums = []

    def is_cuda(self):
        return self.device.type == "cuda"

    def send(self, made):
        """The other cards' share of `made`; on the exchange's stream, and when it is there."""
        if not self.is_cuda():
            return made * 0.5, None
        self.exchange.wait_stream(torch.cuda.current_stream())
        made.record_stream(self.exchange)
        with torch.cuda.stream(self.exchange):
            received = made * 0.5
            return received, self.exchange.record_event()

    def receive(self, received, arrived):
        if arrived is not None:
            torch.cuda.current_stream().wait_event(arrived)
            received.record_stream(torch.cuda.current_stream())
        return received

    def step(self, counts):
        width = self.weights[0].shape[0]
        halves = [torch.ones(count, width, device=self.device) for count in counts]
        under_way = [None, None]
        for weight in self.weights:
            for i in range(2):
                if under_way[i] is not None:
                    halves[i] = self.receive(*under_way[i])
                made = torch.nn.functional.gelu(halves[i] @ weight) + halves[i]
                under_way[i] = self.send(made)
        for i in range(2):
            self.sums.append(self.receive(*under_way[i]).mean(dim=0))

    def warm_up(self):
        for counts in self.steps[:WARM_UP_STEPS]:
            self.step(counts)

    def run(self):
        for counts in self.steps[WARM_UP_STEPS:]:
            self.step(counts)

    def outputs(self):
        return self.sums
