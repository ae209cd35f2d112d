# SPDX-License-Identifier: Apache-2.0
"""Training steps of a GPT-like transformer with AdamW on batches of changing length.

Activations of each length have other sizes; the next batch is copied over a side stream meanwhile
(record_stream), and so are the losses back.
"""
import torch
import torch.nn.functional as F
from torch import nn

SIZES = {
    # layers, width, heads, vocabulary; full is 184 million parameters
    "full": (12, 1024, 16, 32000),
    "quick": (4, 512, 8, 8000),
    "tiny": (2, 32, 2, 64),
}
BATCH = {"full": 8, "quick": 4, "tiny": 2}
LONGEST = {"full": 1280, "quick": 256, "tiny": 128}
STEPS = {"full": 64, "quick": 8, "tiny": 3}
WARM_UP_STEPS = 3


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).unbind(2)
        y = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
        )
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, layers, width, heads, vocabulary, longest):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(torch.randn(longest, width) * 0.02)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.tokens.weight)


class Workload:
    def __init__(self, device, size, scale):
        self.device = torch.device(device)
        torch.manual_seed(4)
        layers, width, heads, vocabulary = SIZES[size]
        with self.device:
            self.model = Model(layers, width, heads, vocabulary, LONGEST[size])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.copies = torch.cuda.Stream() if self.is_cuda() else None
        generator = torch.Generator().manual_seed(5)
        self.batches = []
        for _ in range(WARM_UP_STEPS + max(1, round(STEPS[size] * scale))):
            length = LONGEST[size] // 8 * int(torch.randint(1, 9, (), generator=generator))
            length -= int(torch.randint(0, 8, (), generator=generator))
            batch = torch.randint(vocabulary, (BATCH[size], length + 1), generator=generator)
            self.batches.append(batch.pin_memory() if self.is_cuda() else batch)
        self.losses = []

    def is_cuda(self):
        return self.device.type == "cuda"

    def warm_up(self):
        for batch in self.batches[:WARM_UP_STEPS]:
            self.train_on(self.fetch(batch))

    def run(self):
        upcoming = self.fetch(self.batches[WARM_UP_STEPS])
        for batch in self.batches[WARM_UP_STEPS + 1 :]:
            tokens, upcoming = upcoming, self.fetch(batch)
            self.train_on(tokens)
        self.train_on(upcoming)
        if self.is_cuda():
            self.copies.synchronize()

    def fetch(self, batch):
        if not self.is_cuda():
            return batch
        with torch.cuda.stream(self.copies):
            return batch.to(self.device, non_blocking=True)

    def train_on(self, tokens):
        if self.is_cuda():
            main = torch.cuda.current_stream()
            main.wait_stream(self.copies)
            tokens.record_stream(main)
        with torch.autocast(self.device.type, torch.bfloat16):
            logits = self.model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.keep(loss.detach())

    def keep(self, loss):
        if not self.is_cuda():
            self.losses.append(loss)
            return
        kept = torch.empty((), pin_memory=True)
        self.copies.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.copies):
            kept.copy_(loss, non_blocking=True)
        loss.record_stream(self.copies)
        self.losses.append(kept)

    def outputs(self):
        return self.losses + list(self.model.parameters())
