# SPDX-License-Identifier: Apache-2.0
"""Decoding with CUDA graphs, as inference engines do: one for each batch size, all in one pool.

The graphs share a pool, since only one runs at a time: captured from the largest batch down, the
smaller ones fit into the memory of the first. They are replayed in changing order, with eager work
between. What is sent elsewhere comes from a torch.cuda.MemPool, as registered memory would.
"""
import contextlib

import torch
import torch.nn.functional as F

SIZES = {
    # layers, width, heads, feed-forward width, vocabulary, tokens of context
    "full": (12, 1536, 12, 6144, 32000, 512),
    "quick": (4, 512, 8, 2048, 8000, 128),
    "tiny": (2, 64, 4, 128, 256, 16),
}
BATCHES = {
    "full": (64, 60, 56, 52, 48, 44, 40, 36, 32, 28, 24, 20, 16, 12, 8, 6, 4, 3, 2, 1),
    "quick": (16, 8, 4, 1),
    "tiny": (4, 2, 1),
}
ROUNDS = {"full": 3, "quick": 2, "tiny": 1}
TOKENS = {"full": 64, "quick": 24, "tiny": 6}


class Decoder:
    """Greedy decoding by one token, into caches of a fixed size: no shape depends on the place."""

    def __init__(self, device, size, most):
        layers, width, self.heads, hidden, vocabulary, context = SIZES[size]
        generator = torch.Generator(device).manual_seed(1)

        def make(*shape):
            weight = torch.empty(shape, dtype=torch.bfloat16, device=device)
            return weight.normal_(0, shape[-1] ** -0.5, generator=generator)

        self.embedding = make(vocabulary, width)
        self.layers = [
            [make(3 * width, width), make(width, width), make(hidden, width), make(width, hidden)]
            for _ in range(layers)
        ]
        shape = (2, most, self.heads, context, width // self.heads)
        self.caches = [torch.zeros(shape, dtype=torch.bfloat16, device=device)
                       for _ in range(layers)]  # fmt: skip
        self.places = torch.arange(context, device=device)

    def step(self, tokens, position):
        x = F.embedding(tokens, self.embedding)
        is_here = (self.places == position)[:, None]
        is_seen = (self.places <= position)[None, None, None, :]
        for (qkv, out, up, down), cache in zip(self.layers, self.caches):
            x = x + F.linear(self.attend(x, qkv, cache[:, : len(tokens)], is_here, is_seen), out)
            y = F.rms_norm(x, x.shape[-1:])
            x = x + F.linear(F.silu(F.linear(y, up)), down)
        return F.linear(F.rms_norm(x, x.shape[-1:]), self.embedding)

    def attend(self, x, qkv, cache, is_here, is_seen):
        batch, width = x.shape
        y = F.linear(F.rms_norm(x, x.shape[-1:]), qkv).view(batch, 3, self.heads, 1, -1)
        q, k, v = y.unbind(1)
        for kept, new in zip(cache, (k, v)):
            kept.copy_(torch.where(is_here, new, kept))
        return F.scaled_dot_product_attention(q, *cache, attn_mask=is_seen).reshape(batch, width)


class Captured:
    """One batch size: what the graph reads and writes stays where it is."""

    def __init__(self, decoder, batch, device):
        self.decoder = decoder
        self.tokens = torch.zeros(batch, dtype=torch.long, device=device)
        self.position = torch.zeros(1, dtype=torch.long, device=device)
        self.logits = None
        self.graph = None

    def capture(self, pool):
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):
            self.logits = self.decoder.step(self.tokens, self.position)

    def run(self, tokens, position):
        self.tokens.copy_(tokens)
        self.position.fill_(position)
        if self.graph is None:  # on a CPU
            return self.decoder.step(self.tokens, self.position)
        self.graph.replay()
        return self.logits.clone()  # the next graph overwrites the pool


def make_pool():
    """None if the plug-in class of PyTorch is used without libquarry_torch.so."""
    try:
        return torch.cuda.MemPool()
    except RuntimeError as error:
        if "createOrIncrefPool" not in str(error):
            raise
        return None


class Workload:
    def __init__(self, device, size, scale, get_reserved):
        self.device = device
        self.get_reserved = get_reserved  # bytes that the allocator holds from the driver
        self.reserved_by_graphs = []  # after each capture
        self.batches = BATCHES[size]
        self.tokens = TOKENS[size]
        self.rounds = max(1, round(ROUNDS[size] * scale))
        self.results = []
        with torch.inference_mode():
            decoder = Decoder(device, size, self.batches[0])
            self.steps = {b: Captured(decoder, b, device) for b in self.batches}
        self.pool = make_pool() if device == "cuda" else None
        self.side = torch.cuda.Stream() if device == "cuda" else None

    def warm_up(self):
        with torch.inference_mode():
            for batch in self.batches:  # libraries are set up outside of captures
                self.answer(batch, 2, seed=0)
            if self.device == "cuda":
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
                before = self.get_reserved()
                pool = torch.cuda.graph_pool_handle()
                for batch in self.batches:  # the largest first
                    self.steps[batch].capture(pool)
                    self.reserved_by_graphs.append(self.get_reserved() - before)
        self.results.clear()

    def run(self):
        with torch.inference_mode():
            for i in range(self.rounds):
                generator = torch.Generator().manual_seed(i)
                for j in torch.randperm(len(self.batches), generator=generator).tolist():
                    self.answer(self.batches[j], self.tokens, seed=i)

    def answer(self, batch, count, seed):
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randint(len(self.steps[batch].decoder.embedding), (batch,),
                               generator=generator).to(self.device)  # fmt: skip
        history = []
        for position in range(count):
            logits = self.steps[batch].run(tokens, position)
            tokens = logits.argmax(-1)
            history.append(tokens)
        self.results.append(torch.stack(history))
        self.results.append(self.send(logits))

    def send(self, logits):
        pool = contextlib.nullcontext()
        if self.pool is not None:
            pool = torch.cuda.use_mem_pool(self.pool)
        with pool:
            packet = logits.float().log_softmax(-1)
        if self.side is None:
            return packet.sum(0)
        main = torch.cuda.current_stream()
        self.side.wait_stream(main)
        with torch.cuda.stream(self.side):
            total = packet.sum(0)
        packet.record_stream(self.side)
        main.wait_stream(self.side)
        total.record_stream(main)
        return total

    def outputs(self):
        return self.results

    def figures(self):
        if not self.reserved_by_graphs:
            return {}
        return {
            "graphs": len(self.reserved_by_graphs),
            "reserved_by_largest_graph": self.reserved_by_graphs[0],
            "reserved_by_graphs": self.reserved_by_graphs[-1],
        }
