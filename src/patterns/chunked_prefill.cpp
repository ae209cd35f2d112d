// SPDX-License-Identifier: Apache-2.0
// chunked_prefill: an engine that takes long prompts a chunk at a time over a preallocated cache,
// with attention that is not fused: each layer's scores, and their softmax in fp32, are as wide as
// what came before, so they grow from chunk to chunk and start anew with each prompt.
#include <algorithm>
#include <utility>

#include "patterns/pattern_table.hpp"
#include "patterns/transformer.hpp"

namespace quarry::patterns {
namespace {

constexpr Bytes kFloatBytes = 4;

constexpr Knob kKnobs[] = {
    make_layers_knob(32),
    make_hidden_knob(4096),
    make_heads_knob(32),
    make_kv_heads_knob(8),
    make_ffn_knob(14336),
    make_vocab_knob(128256),
    make_dtype_knob(),
    make_count_knob("prompts", 12, "Prompts, one after the other"),
    make_tokens_knob("prompt-least", 1024, "Shortest prompt"),
    make_tokens_knob("prompt-most", 8192, "Longest prompt; the cache holds one"),
    make_tokens_knob("chunk", 512, "Most tokens of a prompt in a step")};

void attend(Workload& workload, const Transformer& model, std::uint64_t chunk,
            std::uint64_t length) {
  const Bytes bytes = multiply(model.heads, model.size(chunk, length));
  const Tensor scores = workload.allocate(bytes);
  workload.run(0, multiply(2, chunk, length, model.hidden), bytes);
  const Tensor softmax =
      workload.allocate(multiply(model.heads, multiply(chunk, length, kFloatBytes)));
  workload.run(0, 0, bytes + softmax.bytes);
  workload.free(scores);
  const Tensor weights = workload.allocate(bytes);
  workload.run(0, 0, bytes + softmax.bytes);
  workload.free(softmax);
  workload.free(weights);
}

Status act(const PatternInput& input, Workload& workload) {
  const KnobValues& knobs = input.knobs;
  Result<Transformer> model = read_transformer(knobs);
  if (!model.is_ok()) return std::move(model).status();
  if (Status status = knobs.check_order("prompt-least", "prompt-most"); !status.is_ok()) {
    return status;
  }
  keep_weights(workload, model.value());
  for (std::uint64_t layer = 0; layer < model.value().layers; ++layer)
    workload.keep(model.value().kv_size(knobs.get("prompt-most")));
  for (std::uint64_t i = 0; i < knobs.get("prompts"); ++i) {
    const std::uint64_t prompt =
        workload.rng().between(knobs.get("prompt-least"), knobs.get("prompt-most"));
    for (std::uint64_t done = 0; done < prompt && !workload.is_full();) {
      const std::uint64_t chunk = std::min(knobs.get("chunk"), prompt - done);
      done += chunk;
      run_model(workload, model.value(), {chunk, done, done, 0}, 1,
                [&](std::uint64_t) { attend(workload, model.value(), chunk, done); });
    }
  }
  return Status::ok();
}

}  // namespace

constinit const Pattern kChunkedPrefill = {
    "chunked_prefill", "Long prompts in chunks, with attention scores in memory",
    "weights and the KV cache", kKnobs, act};

}  // namespace quarry::patterns
