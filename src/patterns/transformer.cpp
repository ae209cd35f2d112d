// SPDX-License-Identifier: Apache-2.0
#include "patterns/transformer.hpp"

#include <fmt/format.h>

namespace quarry::patterns {
namespace {

constexpr Bytes kFloatBytes = 4;

Status check_divides(const KnobValues& knobs, std::string_view part, std::string_view whole) {
  if (knobs.get(whole) % knobs.get(part) == 0) return Status::ok();
  return Status(
      StatusCode::kInvalidArgument,
      fmt::format("--{}: value {} is not allowed; allowed: a divisor of --{}, which is {}", part,
                  knobs.get(part), whole, knobs.get(whole)));
}

// Reads and writes its input: norms, residuals, activation functions.
void run_elementwise(Workload& workload, const Tensor& tensor) {
  workload.run(tensor.stream, 0, multiply(2, tensor.bytes));
}

}  // namespace

Bytes Transformer::layer_size() const {
  const std::uint64_t attention = multiply(hidden, 2 * hidden + 2 * kv_width());
  return multiply(attention + multiply(hidden, 3, ffn), element);
}

Result<Transformer> read_transformer(const KnobValues& knobs) {
  if (Status status = check_divides(knobs, "heads", "hidden"); !status.is_ok()) return status;
  if (Status status = check_divides(knobs, "kv-heads", "heads"); !status.is_ok()) return status;
  Transformer model;
  model.layers = knobs.get("layers");
  model.hidden = knobs.get("hidden");
  model.heads = knobs.get("heads");
  model.kv_heads = knobs.get("kv-heads");
  model.ffn = knobs.get("ffn");
  model.vocab = knobs.get("vocab");
  model.element = knobs.get("dtype");
  return model;
}

void keep_weights(Workload& workload, const Transformer& model, WeightParts parts) {
  workload.keep_loaded(model.size(model.vocab, model.hidden));
  for (std::uint64_t layer = 0; layer < model.layers; ++layer) {
    workload.keep_loaded(model.size(model.hidden, model.hidden + 2 * model.kv_width()));
    workload.keep_loaded(model.size(model.hidden, model.hidden));
    workload.keep_loaded(model.size(2, model.hidden));
    if (parts == WeightParts::kNoFeedForward) continue;
    workload.keep_loaded(model.size(model.hidden, 2 * model.ffn));
    workload.keep_loaded(model.size(model.ffn, model.hidden));
  }
  workload.keep_loaded(model.size(model.vocab, model.hidden));
}

void run_product(Workload& workload, Bytes element, std::uint64_t rows, std::uint64_t inner,
                 std::uint64_t outer, Stream stream) {
  const Bytes moved =
      multiply(element, multiply(rows, inner) + multiply(inner, outer) + multiply(rows, outer));
  workload.run(stream, multiply(2, rows, inner, outer), moved);
}

void run_attention(Workload& workload, const Transformer& model, const Tokens& tokens,
                   const std::function<void()>& attend) {
  const Stream stream = tokens.stream;
  const Bytes states = model.size(tokens.count, model.hidden);
  const std::uint64_t qkv_width = model.hidden + 2 * model.kv_width();
  const Tensor normed = workload.allocate(states, stream);
  run_elementwise(workload, normed);
  const Tensor qkv = workload.allocate(model.size(tokens.count, qkv_width), stream);
  run_product(workload, model.element, tokens.count, model.hidden, qkv_width, stream);
  workload.free(normed);
  if (attend) attend();
  const Tensor attended = workload.allocate(states, stream);
  workload.run(stream, multiply(4, tokens.count, tokens.context, model.hidden),
               model.kv_size(tokens.cached));
  workload.free(qkv);
  const Tensor projected = workload.allocate(states, stream);
  run_product(workload, model.element, tokens.count, model.hidden, model.hidden, stream);
  workload.free(attended);
  run_elementwise(workload, projected);
  workload.free(projected);
}

void run_feed_forward(Workload& workload, const Transformer& model, const Tokens& tokens) {
  const Stream stream = tokens.stream;
  const Tensor normed = workload.allocate(model.size(tokens.count, model.hidden), stream);
  run_elementwise(workload, normed);
  const Tensor gates = workload.allocate(model.size(tokens.count, 2 * model.ffn), stream);
  run_product(workload, model.element, tokens.count, model.hidden, 2 * model.ffn, stream);
  workload.free(normed);
  const Tensor inner = workload.allocate(model.size(tokens.count, model.ffn), stream);
  run_elementwise(workload, gates);
  workload.free(gates);
  const Tensor output = workload.allocate(model.size(tokens.count, model.hidden), stream);
  run_product(workload, model.element, tokens.count, model.ffn, model.hidden, stream);
  workload.free(inner);
  run_elementwise(workload, output);
  workload.free(output);
}

void run_layer(Workload& workload, const Transformer& model, const Tokens& tokens,
               const std::function<void()>& attend) {
  run_attention(workload, model, tokens, attend);
  run_feed_forward(workload, model, tokens);
}

void run_head(Workload& workload, const Transformer& model, std::uint64_t rows, Stream stream) {
  const Tensor logits = workload.allocate(multiply(rows, model.vocab, kFloatBytes), stream);
  run_product(workload, model.element, rows, model.hidden, model.vocab, stream);
  const Tensor chosen = workload.allocate(multiply(rows, 8), stream);
  run_elementwise(workload, logits);
  workload.free(logits);
  workload.free(chosen);
}

void run_model(Workload& workload, const Transformer& model, const Tokens& tokens,
               std::uint64_t sequences, const std::function<void(std::uint64_t)>& attend) {
  const Tensor states = workload.allocate(model.size(tokens.count, model.hidden), tokens.stream);
  for (std::uint64_t layer = 0; layer < model.layers; ++layer) {
    run_layer(workload, model, tokens, [&] {
      if (attend) attend(layer);
    });
  }
  run_head(workload, model, sequences, tokens.stream);
  workload.free(states);
}

}  // namespace quarry::patterns
