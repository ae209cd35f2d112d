// SPDX-License-Identifier: Apache-2.0
// kv_concat: offline generation as a plain script does it. After each token every layer's keys and
// values are concatenated with the new ones into fresh memory, and the old ones are freed: no size
// ever comes twice while a batch grows.
// kv_static: an engine that allocates the cache for all its slots once, prefills each batch in one
// step and generates into the slots: only activations come and go.
#include <utility>

#include "patterns/pattern_table.hpp"
#include "patterns/transformer.hpp"

namespace quarry::patterns {
namespace {

constexpr Knob kConcatKnobs[] = {
    make_layers_knob(16),
    make_hidden_knob(2048),
    make_heads_knob(32),
    make_kv_heads_knob(8),
    make_ffn_knob(8192),
    make_vocab_knob(128256),
    make_dtype_knob(),
    make_batch_knob(16),
    make_count_knob("batches", 3, "Batches, one after the other"),
    make_tokens_knob("prompt-least", 256, "Shortest prompts of a batch"),
    make_tokens_knob("prompt-most", 1024, "Longest prompts of a batch"),
    make_tokens_knob("output-tokens", 64, "Tokens generated for each sequence")};

constexpr Knob kStaticKnobs[] = {
    make_layers_knob(32),
    make_hidden_knob(4096),
    make_heads_knob(32),
    make_kv_heads_knob(8),
    make_ffn_knob(14336),
    make_vocab_knob(128256),
    make_dtype_knob(),
    make_batch_knob(32),
    make_count_knob("batches", 4, "Batches, one after the other"),
    make_tokens_knob("slot", 4096, "Tokens that a sequence's slot holds"),
    make_tokens_knob("prompt-least", 256, "Shortest prompts of a batch"),
    make_tokens_knob("prompt-most", 1024, "Longest prompts of a batch"),
    make_tokens_knob("output-tokens", 32, "Tokens generated for each sequence")};

struct Layer {
  Tensor keys;
  Tensor values;
};

void replace(Workload& workload, Tensor& tensor, Bytes bytes) {
  const Tensor joined = workload.allocate(bytes);
  workload.run(0, 0, multiply(2, bytes));
  if (tensor.bytes != 0) workload.free(tensor);
  tensor = joined;
}

void generate_concatenating(Workload& workload, const Transformer& model, std::uint64_t batch,
                            std::uint64_t prompt, std::uint64_t output) {
  std::vector<Layer> cache(model.layers);
  for (std::uint64_t step = 0; step < output && !workload.is_full(); ++step) {
    const std::uint64_t length = prompt + step;
    const std::uint64_t count = step == 0 ? batch * prompt : batch;
    const Bytes bytes = model.size(batch * length, model.kv_width());
    run_model(workload, model, {count, length, batch * length, 0}, batch,
              [&](std::uint64_t layer) {
                replace(workload, cache[layer].keys, bytes);
                replace(workload, cache[layer].values, bytes);
              });
  }
  for (const Layer& layer : cache) {
    workload.free(layer.keys);
    workload.free(layer.values);
  }
}

Status act_concat(const PatternInput& input, Workload& workload) {
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
    generate_concatenating(workload, model.value(), knobs.get("batch"), prompt,
                           knobs.get("output-tokens"));
  }
  return Status::ok();
}

Status act_static(const PatternInput& input, Workload& workload) {
  const KnobValues& knobs = input.knobs;
  Result<Transformer> model = read_transformer(knobs);
  if (!model.is_ok()) return std::move(model).status();
  if (Status status = knobs.check_order("prompt-least", "prompt-most"); !status.is_ok()) {
    return status;
  }
  const std::uint64_t batch = knobs.get("batch");
  const std::uint64_t output = knobs.get("output-tokens");
  if (knobs.get("prompt-most") + output > knobs.get("slot")) {
    return Status(
        StatusCode::kInvalidArgument,
        "--slot: value " + std::to_string(knobs.get("slot")) +
            " is not allowed; allowed: at least --prompt-most and --output-tokens together, " +
            std::to_string(knobs.get("prompt-most") + output));
  }
  keep_weights(workload, model.value());
  const Bytes slots = model.value().size(batch * knobs.get("slot"), model.value().kv_width());
  for (std::uint64_t half = 0; half < 2 * model.value().layers; ++half)
    workload.keep(slots);
  for (std::uint64_t i = 0; i < knobs.get("batches"); ++i) {
    const std::uint64_t prompt =
        workload.rng().between(knobs.get("prompt-least"), knobs.get("prompt-most"));
    for (std::uint64_t step = 0; step < output && !workload.is_full(); ++step) {
      const std::uint64_t length = prompt + step;
      const std::uint64_t count = step == 0 ? batch * prompt : batch;
      run_model(workload, model.value(), {count, length, batch * length, 0}, batch);
    }
  }
  return Status::ok();
}

}  // namespace

constinit const Pattern kKvConcat = {
    "kv_concat", "Offline generation, the KV cache concatenated anew at each step", "weights",
    kConcatKnobs, act_concat};
constinit const Pattern kKvStatic = {"kv_static",
                                     "Generation into KV slots that were allocated once",
                                     "weights and KV slots", kStaticKnobs, act_static};

}  // namespace quarry::patterns
