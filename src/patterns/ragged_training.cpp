// SPDX-License-Identifier: Apache-2.0
// ragged_training: training on one device and one stream, on batches that are packed to another
// number of tokens each step. All activations are kept from forward to backward, which frees them
// in reverse order, each after the gradient of the same size.
#include <utility>

#include "patterns/pattern_table.hpp"
#include "patterns/transformer.hpp"

namespace quarry::patterns {
namespace {

constexpr Bytes kFloatBytes = 4;

constexpr Knob kKnobs[] = {make_layers_knob(24),
                           make_hidden_knob(1024),
                           make_heads_knob(16),
                           make_kv_heads_knob(16),
                           make_ffn_knob(4096),
                           make_vocab_knob(50304),
                           make_dtype_knob(),
                           make_count_knob("steps", 60, "Steps"),
                           make_tokens_knob("tokens-least", 2000, "Fewest tokens of a step"),
                           make_tokens_knob("tokens-most", 16000, "Most tokens of a step"),
                           make_tokens_knob("context", 1024, "Tokens that each looks at")};

void keep_state(Workload& workload, const Transformer& model) {
  keep_weights(workload, model);
  for (std::uint64_t layer = 0; layer < model.layers; ++layer) {
    const Bytes in_float = multiply(model.layer_size() / model.element, kFloatBytes);
    for (int i = 0; i < 3; ++i)
      workload.keep(in_float);
    workload.keep(model.layer_size());  // gradients
  }
}

void run_forward(Workload& workload, const Transformer& model, const Tokens& tokens,
                 std::vector<Tensor>& kept) {
  const std::uint64_t widths[] = {model.hidden, model.hidden + 2 * model.kv_width(), model.hidden,
                                  2 * model.ffn, model.ffn};
  for (std::uint64_t layer = 0; layer < model.layers; ++layer) {
    for (const std::uint64_t width : widths)
      kept.push_back(workload.allocate(model.size(tokens.count, width)));
    run_layer(workload, model, tokens);
  }
}

void run_backward(Workload& workload, const Transformer& model, std::uint64_t tokens,
                  std::vector<Tensor>& kept) {
  Tensor gradient = workload.allocate(model.size(tokens, model.hidden));
  for (; !kept.empty(); kept.pop_back()) {
    const Tensor next = workload.allocate(kept.back().bytes);
    // A fifth of a layer, which has five activations; backward does twice the work of forward.
    workload.run(0, multiply(4, tokens, model.layer_size() / model.element / 5),
                 multiply(3, next.bytes));
    workload.free(kept.back());
    workload.free(gradient);
    gradient = next;
  }
  workload.free(gradient);
}

void run_loss(Workload& workload, const Transformer& model, std::uint64_t tokens) {
  const Tensor logits = workload.allocate(model.size(tokens, model.vocab));
  run_product(workload, model.element, tokens, model.hidden, model.vocab, 0);
  const Tensor in_float = workload.allocate(multiply(tokens, model.vocab, kFloatBytes));
  workload.run(0, 0, logits.bytes + in_float.bytes);
  workload.free(logits);
  workload.run(0, 0, multiply(2, in_float.bytes));
  workload.free(in_float);
}

Status act(const PatternInput& input, Workload& workload) {
  const KnobValues& knobs = input.knobs;
  Result<Transformer> model = read_transformer(knobs);
  if (!model.is_ok()) return std::move(model).status();
  if (Status status = knobs.check_order("tokens-least", "tokens-most"); !status.is_ok()) {
    return status;
  }
  keep_state(workload, model.value());
  for (std::uint64_t step = 0; step < knobs.get("steps") && !workload.is_full(); ++step) {
    const std::uint64_t count =
        workload.rng().between(knobs.get("tokens-least"), knobs.get("tokens-most"));
    std::vector<Tensor> kept;
    run_forward(workload, model.value(), {count, knobs.get("context"), count, 0}, kept);
    run_loss(workload, model.value(), count);
    run_backward(workload, model.value(), count, kept);
  }
  return Status::ok();
}

}  // namespace

constinit const Pattern kRaggedTraining = {
    "ragged_training", "Training on batches of varying length, all activations kept",
    "weights, gradients and the optimizer's state", kKnobs, act};

}  // namespace quarry::patterns
