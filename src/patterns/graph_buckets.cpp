// SPDX-License-Identifier: Apache-2.0
// graph_buckets: an engine that captures a CUDA graph for each of many batch sizes, the largest
// first (on stream 1), and keeps their inputs and outputs. Afterwards generation replays the graph
// of the next larger size, which allocates nothing but what sampling needs, and prompts run
// eagerly between replays (on stream 0). The trace format has no captures: these are ordinary
// rows.
#include <utility>

#include "patterns/pattern_table.hpp"
#include "patterns/transformer.hpp"

namespace quarry::patterns {
namespace {

constexpr Stream kEager = 0;
constexpr Stream kCapturing = 1;
constexpr Bytes kFloatBytes = 4;

constexpr Knob kKnobs[] = {
    make_layers_knob(16),
    make_hidden_knob(2048),
    make_heads_knob(32),
    make_kv_heads_knob(8),
    make_ffn_knob(8192),
    make_vocab_knob(128256),
    make_dtype_knob(),
    {"buckets", 20, 1, 512, "", "Batch sizes that are captured"},
    {"bucket-step", 8, 1, 512, "sequences", "Distance of one batch size from the next"},
    make_tokens_knob("slot", 1024, "Tokens that the cache of a sequence holds"),
    make_count_knob("steps", 1500, "Steps after the captures"),
    {"prefill", 8, 0, 100, "%", "Part of the steps that is a prompt"},
    make_tokens_knob("prompt-least", 64, "Shortest prompt"),
    make_tokens_knob("prompt-most", 2048, "Longest prompt")};

struct Bucket {
  std::uint64_t batch = 0;
  Tensor outputs;
};

std::vector<Bucket> capture(Workload& workload, const Transformer& model,
                            const KnobValues& knobs) {
  std::vector<Bucket> buckets;
  for (std::uint64_t i = knobs.get("buckets"); i > 0; --i) {
    Bucket& bucket = buckets.emplace_back();
    bucket.batch = i * knobs.get("bucket-step");
    workload.keep(multiply(bucket.batch, 8), kCapturing);
    const Tensor states = workload.allocate(model.size(bucket.batch, model.hidden), kCapturing);
    const std::uint64_t cached = multiply(bucket.batch, knobs.get("slot"));
    for (std::uint64_t layer = 0; layer < model.layers; ++layer)
      run_layer(workload, model, {bucket.batch, knobs.get("slot"), cached, kCapturing});
    bucket.outputs = workload.keep(multiply(bucket.batch, model.vocab, kFloatBytes), kCapturing);
    workload.free(states);
  }
  workload.wait(kEager, workload.now(kCapturing));
  return buckets;
}

void replay(Workload& workload, const Transformer& model, const Bucket& bucket,
            std::uint64_t slot) {
  const Bytes moved = multiply(model.layers, model.layer_size()) +
                      multiply(model.layers, model.kv_size(multiply(bucket.batch, slot / 2)));
  workload.run(kEager, multiply(bucket.batch, moved), moved);
  const Tensor sorted = workload.allocate(bucket.outputs.bytes, kEager);
  workload.run(kEager, 0, 4 * sorted.bytes);
  const Tensor chosen = workload.allocate(multiply(bucket.batch, 8), kEager);
  workload.free(sorted);
  workload.free(chosen);
}

Status act(const PatternInput& input, Workload& workload) {
  const KnobValues& knobs = input.knobs;
  Result<Transformer> model = read_transformer(knobs);
  if (!model.is_ok()) return std::move(model).status();
  if (Status status = knobs.check_order("prompt-least", "prompt-most"); !status.is_ok()) {
    return status;
  }
  keep_weights(workload, model.value());
  const std::uint64_t most = knobs.get("buckets") * knobs.get("bucket-step");
  for (std::uint64_t layer = 0; layer < model.value().layers; ++layer)
    workload.keep(model.value().kv_size(multiply(most, knobs.get("slot"))));
  workload.wait(kCapturing, workload.now(kEager));
  const std::vector<Bucket> buckets = capture(workload, model.value(), knobs);
  Rng& rng = workload.rng();
  for (std::uint64_t step = 0; step < knobs.get("steps") && !workload.is_full(); ++step) {
    if (!rng.chance(knobs.get("prefill"))) {
      replay(workload, model.value(), buckets[rng.below(buckets.size())], knobs.get("slot"));
      continue;
    }
    const std::uint64_t prompt = rng.between(knobs.get("prompt-least"), knobs.get("prompt-most"));
    run_model(workload, model.value(), {prompt, prompt, prompt, kEager}, 1);
  }
  return Status::ok();
}

}  // namespace

constinit const Pattern kGraphBuckets = {
    "graph_buckets", "Graphs of many batch sizes, replayed between eager prompts",
    "weights, the KV cache, and each graph's inputs and outputs", kKnobs, act};

}  // namespace quarry::patterns
