# SPDX-License-Identifier: Apache-2.0
"""Image inference at changing resolutions: a ResNet-50-like classifier and a U-Net, channels_last.

Images come from pinned host memory over a copy stream and results go back over it, so blocks are
allocated on one stream and used on two: record_stream is what keeps them apart.
"""
import torch
from torch import nn

SIZES = {
    # width of the first stage, bottlenecks of each stage
    "full": (64, (3, 4, 6, 3)),
    "quick": (32, (2, 2, 2, 2)),
    "tiny": (8, (1, 1)),
}
BATCHES = {
    # images, resolution
    "full": [(48, 224), (24, 320), (64, 192), (12, 448), (32, 256), (8, 512), (20, 384)],
    "quick": [(8, 224), (4, 320), (16, 128)],
    "tiny": [(2, 32), (1, 48)],
}
ROUNDS = {"full": 24, "quick": 4, "tiny": 1}


def convolve(inputs, outputs, kernel=3, stride=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            convolve(inputs, width, 1),
            convolve(width, width, 3, stride),
            nn.Conv2d(width, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.skip = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.skip = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        return torch.relu(self.body(x) + self.skip(x))


def make_classifier(width, stages):
    blocks = [convolve(3, width, 7, 2), nn.MaxPool2d(3, 2, 1)]
    inputs = width
    for stage, count in enumerate(stages):
        for i in range(count):
            stride = 2 if stage > 0 and i == 0 else 1
            blocks.append(Bottleneck(inputs, width << stage, stride))
            inputs = 4 * (width << stage)
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def pair(inputs, outputs):
    return nn.Sequential(convolve(inputs, outputs), convolve(outputs, outputs))


class UNet(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        widths = [width << i for i in range(depth + 1)]
        self.first = pair(3, width)
        self.down = nn.ModuleList(pair(a, b) for a, b in zip(widths, widths[1:]))
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(widths, widths[1:])
        )
        self.merge = nn.ModuleList(pair(2 * a, a) for a in widths[:-1])
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, x):
        kept = [self.first(x)]
        for down in self.down:
            kept.append(down(nn.functional.max_pool2d(kept[-1], 2)))
        x = kept.pop()
        for up, merge in zip(reversed(self.up), reversed(self.merge)):
            x = merge(torch.cat((up(x), kept.pop()), 1))
        return self.last(x)


class Workload:
    def __init__(self, device, size, scale):
        self.device = torch.device(device)
        width, stages = SIZES[size]
        torch.manual_seed(2)
        with self.device:
            self.models = [make_classifier(width, stages), UNet(width // 2, len(stages))]
        for model in self.models:
            model.eval().to(torch.bfloat16, memory_format=torch.channels_last)
        self.batches = []
        generator = torch.Generator().manual_seed(3)
        for images, resolution in BATCHES[size]:
            batch = torch.rand(images, 3, resolution, resolution, generator=generator)
            batch = batch.to(torch.bfloat16, memory_format=torch.channels_last)
            self.batches.append(batch.pin_memory() if self.is_cuda() else batch)
        self.rounds = max(1, round(ROUNDS[size] * scale))
        self.copies = torch.cuda.Stream() if self.is_cuda() else None
        self.results = {}  # by batch and model: of the last round, on the host
        self.checksums = []  # of every round, on the device

    def is_cuda(self):
        return self.device.type == "cuda"

    def warm_up(self):
        self.run(rounds=1)

    def run(self, rounds=None):
        self.checksums.clear()
        with torch.inference_mode():
            for _ in range(rounds or self.rounds):
                upcoming = self.fetch(0)
                for i in range(len(self.batches)):
                    images = upcoming
                    upcoming = self.fetch((i + 1) % len(self.batches))
                    for j, model in enumerate(self.models):
                        self.deliver((i, j), model(self.receive(images)))
        if self.is_cuda():
            self.copies.synchronize()

    def fetch(self, index):
        """Starts the copy of a batch to the device."""
        if not self.is_cuda():
            return self.batches[index]
        with torch.cuda.stream(self.copies):
            return self.batches[index].to(self.device, non_blocking=True)

    def receive(self, images):
        if self.is_cuda():
            main = torch.cuda.current_stream()
            main.wait_stream(self.copies)
            images.record_stream(main)  # it belongs to the copy stream
        return images

    def deliver(self, place, result):
        """Starts the copy of a result to the host, and forgets the result."""
        self.checksums.append(result.view(torch.int16).sum(dtype=torch.int64))
        if not self.is_cuda():
            self.results[place] = result
            return
        if place not in self.results:
            self.results[place] = torch.empty_like(result, device="cpu", pin_memory=True)
        self.copies.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.copies):
            self.results[place].copy_(result, non_blocking=True)
        result.record_stream(self.copies)  # it belongs to the main stream

    def outputs(self):
        return self.checksums + list(self.results.values())
