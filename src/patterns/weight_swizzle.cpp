// SPDX-License-Identifier: Apache-2.0
// weight_swizzle: an engine that loads all weights as they are stored, then copies each into the
// layout that its kernels want, a little larger (padding), and frees the original: holes of the
// original sizes, which the next layer's copies do not quite fit. Layers are laid out in the order
// in which threads are done with them. Then it serves.
#include <algorithm>
#include <utility>

#include "patterns/pattern_table.hpp"
#include "patterns/transformer.hpp"

namespace quarry::patterns {
namespace {

constexpr Knob kKnobs[] = {make_layers_knob(40),
                           make_hidden_knob(4096),
                           make_heads_knob(32),
                           make_kv_heads_knob(8),
                           make_ffn_knob(14336),
                           make_vocab_knob(128256),
                           make_dtype_knob(),
                           make_batch_knob(32),
                           {"padding", 3, 0, 100, "%", "What the new layout takes on top"},
                           {"window", 4, 1, 256, "layers", "Layers whose order is mixed"},
                           make_count_knob("steps", 24, "Steps of serving afterwards"),
                           make_tokens_knob("length", 2048, "Tokens of cache of each sequence"),
                           {"prefill", 20, 0, 100, "%", "Part of the steps that is a prompt"}};

// The weights of a layer as they are stored.
using Loaded = std::vector<Tensor>;

Loaded load(Workload& workload, const Transformer& model) {
  const std::uint64_t widths[][2] = {{model.hidden, model.hidden + 2 * model.kv_width()},
                                     {model.hidden, model.hidden},
                                     {model.hidden, 2 * model.ffn},
                                     {model.ffn, model.hidden}};
  Loaded layer;
  for (const auto& [rows, columns] : widths) {
    layer.push_back(workload.allocate(model.size(rows, columns)));
    workload.load(layer.back().bytes);
  }
  workload.keep_loaded(model.size(2, model.hidden));
  return layer;
}

void lay_out(Workload& workload, const Loaded& layer, std::uint64_t padding) {
  for (const Tensor& original : layer) {
    const Bytes bytes = original.bytes + original.bytes / 100 * padding;
    workload.keep(bytes);
    workload.run(0, 0, original.bytes + bytes);
    workload.free(original);
  }
}

// Each stretch of `window` layers in an order of its own.
std::vector<std::size_t> mix(Rng& rng, std::size_t count, std::size_t window) {
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i)
    order[i] = i;
  for (std::size_t start = 0; start < count; start += window) {
    const std::size_t length = std::min(window, count - start);
    for (std::size_t i = length; i > 1; --i)
      std::swap(order[start + i - 1], order[start + rng.below(i)]);
  }
  return order;
}

void serve(Workload& workload, const Transformer& model, const KnobValues& knobs) {
  const std::uint64_t batch = knobs.get("batch");
  const std::uint64_t length = knobs.get("length");
  for (std::uint64_t layer = 0; layer < model.layers; ++layer)
    workload.keep(model.kv_size(batch * length));
  for (std::uint64_t step = 0; step < knobs.get("steps") && !workload.is_full(); ++step) {
    const bool is_prompt = workload.rng().chance(knobs.get("prefill"));
    const std::uint64_t count = is_prompt ? workload.rng().between(1, length) : batch;
    run_model(workload, model, {count, length / 2, batch * length / 2, 0}, is_prompt ? 1 : batch);
  }
}

Status act(const PatternInput& input, Workload& workload) {
  const KnobValues& knobs = input.knobs;
  Result<Transformer> model = read_transformer(knobs);
  if (!model.is_ok()) return std::move(model).status();
  workload.keep_loaded(model.value().size(model.value().vocab, model.value().hidden));
  std::vector<Loaded> layers;
  for (std::uint64_t layer = 0; layer < model.value().layers; ++layer)
    layers.push_back(load(workload, model.value()));
  workload.keep_loaded(model.value().size(model.value().vocab, model.value().hidden));
  for (const std::size_t layer : mix(workload.rng(), layers.size(), knobs.get("window")))
    lay_out(workload, layers[layer], knobs.get("padding"));
  serve(workload, model.value(), knobs);
  return Status::ok();
}

}  // namespace

constinit const Pattern kWeightSwizzle = {
    "weight_swizzle", "Weights loaded, copied into another layout, the originals freed",
    "weights and the KV cache", kKnobs, act};

}  // namespace quarry::patterns
