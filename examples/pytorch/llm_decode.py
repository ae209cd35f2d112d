# SPDX-License-Identifier: Apache-2.0
"""An LLM that answers requests: a Llama-like decoder with random weights, greedy, in bf16.

The key-value cache is a tensor for each layer that grows by concatenation with each token, and
shrinks when sequences of the batch end: an allocator sees few sizes twice.
"""
import torch
import torch.nn.functional as F

SIZES = {
    # layers, width, heads, feed-forward width, vocabulary; full is 1.14 billion parameters
    "full": (16, 2048, 16, 8192, 32000),
    "quick": (8, 1024, 8, 4096, 32000),
    "tiny": (2, 64, 4, 128, 256),
}
# batch, tokens of the prompt, tokens to generate
REQUESTS = {
    "full": [(8, 512, 160), (1, 2048, 120), (32, 128, 200), (16, 777, 160), (4, 1500, 120),
             (24, 300, 180), (2, 3000, 100), (12, 640, 160)],
    "quick": [(4, 128, 24), (1, 512, 16), (8, 64, 24)],
    "tiny": [(4, 12, 6), (2, 20, 4)],
}  # fmt: skip
TOKENS_BETWEEN_ENDINGS = 24


class Layer:
    def __init__(self, make, width, heads, hidden):
        self.heads = heads
        self.qkv = make(3 * width, width)
        self.out = make(width, width)
        self.gate_up = make(2 * hidden, width)
        self.down = make(width, hidden)
        self.norm1 = make(width).mul_(0).add_(1)
        self.norm2 = make(width).mul_(0).add_(1)

    def forward(self, x, cache, rotary):
        batch, length, width = x.shape
        y = F.rms_norm(x, (width,), self.norm1)
        q, k, v = F.linear(y, self.qkv).view(batch, length, 3, self.heads, -1).unbind(2)
        q, k = rotate(q, rotary).transpose(1, 2), rotate(k, rotary).transpose(1, 2)
        v = v.transpose(1, 2)
        if cache is not None:
            k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
        x = x + F.linear(y.transpose(1, 2).reshape(batch, length, width), self.out)
        y = F.rms_norm(x, (width,), self.norm2)
        gate, up = F.linear(y, self.gate_up).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, self.down), (k, v)


def rotate(x, rotary):
    cos, sin = rotary
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


class Workload:
    def __init__(self, device, size, scale):
        self.device = device
        layers, width, heads, hidden, self.vocabulary = SIZES[size]
        generator = torch.Generator(device).manual_seed(1)

        def make(*shape):
            weight = torch.empty(shape, dtype=torch.bfloat16, device=device)
            return weight.normal_(0, shape[-1] ** -0.5, generator=generator)

        self.embedding = make(self.vocabulary, width)
        self.layers = [Layer(make, width, heads, hidden) for _ in range(layers)]
        self.final_norm = make(width).mul_(0).add_(1)
        self.frequencies = 10000.0 ** -torch.linspace(0, 1, width // heads // 2, device=device)
        requests = REQUESTS[size]
        count = max(1, round(len(requests) * scale))
        self.requests = [requests[i % len(requests)] for i in range(count)]
        self.results = []

    def warm_up(self):
        with torch.inference_mode():
            self.answer(*self.requests[0], seed=0)
        self.results.clear()

    def run(self):
        with torch.inference_mode():
            for seed, request in enumerate(self.requests):
                self.answer(*request, seed=seed)

    def step(self, tokens, caches, position):
        x = F.embedding(tokens, self.embedding)
        places = torch.arange(position, position + tokens.shape[1], device=self.device)
        angles = (places[:, None] * self.frequencies)[None, :, None, :]
        rotary = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for i, layer in enumerate(self.layers):
            x, caches[i] = layer.forward(x, caches[i], rotary)
        x = F.rms_norm(x[:, -1], x.shape[-1:], self.final_norm)
        return F.linear(x, self.embedding)

    def answer(self, batch, prompt, new_tokens, seed):
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randint(self.vocabulary, (batch, prompt), generator=generator)
        tokens = tokens.to(self.device)
        caches = [None] * len(self.layers)
        logits = self.step(tokens, caches, 0)
        for i in range(new_tokens):
            tokens = logits.argmax(-1, keepdim=True)
            self.results.append(tokens)
            if i % TOKENS_BETWEEN_ENDINGS == TOKENS_BETWEEN_ENDINGS - 1 and len(tokens) > 1:
                ended = max(1, len(tokens) // 4)
                tokens = tokens[ended:]
                caches = [(k[ended:].contiguous(), v[ended:].contiguous()) for k, v in caches]
            logits = self.step(tokens, caches, prompt + i)
        self.results.append(logits)

    def outputs(self):
        return self.results
