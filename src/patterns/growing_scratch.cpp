// SPDX-License-Identifier: Apache-2.0
// growing_scratch: generation where each step needs scratch for one token more than the step
// before: the mask and the position table are replaced, and each layer expands its keys and values
// to all heads and holds its scores. No free block is ever quite large enough.
#include <utility>

#include "patterns/pattern_table.hpp"
#include "patterns/transformer.hpp"

namespace quarry::patterns {
namespace {

constexpr Bytes kFloatBytes = 4;

constexpr Knob kKnobs[] = {
    make_layers_knob(16),
    make_hidden_knob(2048),
    make_heads_knob(32),
    make_kv_heads_knob(8),
    make_ffn_knob(8192),
    make_vocab_knob(128256),
    make_dtype_knob(),
    make_batch_knob(32),
    make_count_knob("batches", 2, "Batches, one after the other"),
    make_tokens_knob("prompt-least", 512, "Shortest prompts of a batch"),
    make_tokens_knob("prompt-most", 2048, "Longest prompts of a batch"),
    make_tokens_knob("output-tokens", 80, "Tokens generated for each sequence")};

void attend(Workload& workload, const Transformer& model, std::uint64_t batch,
            std::uint64_t length) {
  const Bytes expanded = model.size(batch * length, model.hidden);
  const Tensor keys = workload.allocate(expanded);
  const Tensor values = workload.allocate(expanded);
  workload.run(0, 0, multiply(2, expanded) + model.kv_size(batch * length));
  const Tensor scores = workload.allocate(multiply(batch, model.heads, length, kFloatBytes));
  workload.run(0, 0, multiply(2, expanded) + scores.bytes);
  workload.free(keys);
  workload.free(scores);
  workload.free(values);
}

void generate(Workload& workload, const Transformer& model, std::uint64_t batch,
              std::uint64_t prompt, std::uint64_t output) {
  std::vector<Tensor> cache;
  for (std::uint64_t layer = 0; layer < model.layers; ++layer)
    cache.push_back(workload.allocate(model.kv_size(batch * (prompt + output))));
  run_model(workload, model, {batch * prompt, prompt, batch * prompt, 0}, batch);
  Tensor mask = workload.allocate(multiply(batch, prompt, kFloatBytes));
  Tensor positions = workload.allocate(multiply(prompt, model.hidden / model.heads, kFloatBytes));
  for (std::uint64_t step = 1; step < output && !workload.is_full(); ++step) {
    const std::uint64_t length = prompt + step;
    const Tensor next_mask = workload.allocate(multiply(batch, length, kFloatBytes));
    workload.free(mask);
    mask = next_mask;
    const Tensor next_positions =
        workload.allocate(multiply(length, model.hidden / model.heads, kFloatBytes));
    workload.free(positions);
    positions = next_positions;
    run_model(workload, model, {batch, length, batch * length, 0}, batch,
              [&](std::uint64_t) { attend(workload, model, batch, length); });
  }
  workload.free(mask);
  workload.free(positions);
  for (const Tensor& tensor : cache)
    workload.free(tensor);
}

Status act(const PatternInput& input, Workload& workload) {
  const KnobValues& knobs = input.knobs;
  Result<Transformer> model = read_transformer(knobs);
  if (!model.is_ok()) return std::move(model).status();
  if (Status status = knobs.check_order("prompt-least", "prompt-most"); !status.is_ok()) {
    return status;
  }
  keep_weights(workload, model.value());
  for (std::uint64_t i = 0; i < knobs.get("batches") && !workload.is_full(); ++i) {
    const std::uint64_t prompt =
        workload.rng().between(knobs.get("prompt-least"), knobs.get("prompt-most"));
    generate(workload, model.value(), knobs.get("batch"), prompt, knobs.get("output-tokens"));
  }
  return Status::ok();
}

}  // namespace

constinit const Pattern kGrowingScratch = {
    "growing_scratch", "Scratch that needs one token more at each step", "weights", kKnobs, act};

}  // namespace quarry::patterns
