// SPDX-License-Identifier: Apache-2.0
// two_batch_overlap: a server of experts spread over devices that halves each step's batch, so
// that one half computes (stream 0) while the tokens of the other are on their way (stream 1).
// What is sent and received is allocated on the computing stream, used on the other too
// (record_stream), and freed at once. Steps have ever new token counts, and so have the buffers.
#include <algorithm>
#include <array>
#include <utility>

#include "patterns/pattern_table.hpp"
#include "patterns/transformer.hpp"

namespace quarry::patterns {
namespace {

constexpr Stream kComputing = 0;
constexpr Stream kSending = 1;

constexpr Knob kKnobs[] = {
    make_layers_knob(16),
    make_hidden_knob(4096),
    make_heads_knob(32),
    make_kv_heads_knob(8),
    {"ffn", 2048, 64, 262144, "elements", "Inner size of an expert"},
    make_vocab_knob(128256),
    make_dtype_knob(),
    {"experts", 8, 1, 1024, "", "Experts of a layer on this device"},
    {"chosen", 4, 1, 64, "", "Experts that a token goes to"},
    {"imbalance", 25, 0, 100, "%", "How far what comes back may be off its mean"},
    make_count_knob("steps", 32, "Steps"),
    make_tokens_knob("tokens-least", 512, "Fewest tokens of a step, both halves together"),
    make_tokens_knob("tokens-most", 16384, "Most tokens of a step, both halves together"),
    make_link_knob(300)};

// One half of the batch, in flight between two layers' parts.
struct Half {
  std::uint64_t tokens = 0;
  std::uint64_t received_tokens = 0;
  Tensor states;
  Tensor received;
  Moment arrival = 0;
};

// Sends `tensor` and frees it; the bytes are on their way until the moment returned.
Moment send_and_free(Workload& workload, const Tensor& tensor, const Tensor& received) {
  workload.wait(kSending, workload.now(kComputing));
  workload.record_stream(tensor, kSending);
  workload.record_stream(received, kSending);
  workload.send(kSending, tensor.bytes);
  workload.free(tensor);
  return workload.now(kSending);
}

void dispatch(Workload& workload, const Transformer& model, const KnobValues& knobs, Half& half) {
  const std::uint64_t sent = half.tokens * knobs.get("chosen");
  const std::uint64_t off = sent * knobs.get("imbalance") / 100;
  half.received_tokens = workload.rng().between(sent - off, sent + off);
  if (half.received_tokens == 0) half.received_tokens = 1;
  const Tensor tokens = workload.allocate(model.size(sent, model.hidden), kComputing);
  workload.run(kComputing, 0, 2 * tokens.bytes);
  half.received = workload.allocate(model.size(half.received_tokens, model.hidden), kComputing);
  half.arrival = send_and_free(workload, tokens, half.received);
}

// The experts, and the way back, which ends at half.arrival.
void run_experts(Workload& workload, const Transformer& model, const KnobValues& knobs,
                 Half& half) {
  const std::uint64_t rows = half.received_tokens;
  workload.wait(kComputing, half.arrival);
  const Tensor gates = workload.allocate(model.size(rows, 2 * model.ffn), kComputing);
  run_product(workload, model.element, rows, model.hidden, 2 * model.ffn, kComputing);
  const Tensor inner = workload.allocate(model.size(rows, model.ffn), kComputing);
  workload.run(kComputing, 0, gates.bytes + inner.bytes);
  workload.free(gates);
  const Tensor output = workload.allocate(model.size(rows, model.hidden), kComputing);
  run_product(workload, model.element, rows, model.ffn, model.hidden, kComputing);
  workload.free(inner);
  workload.free(half.received);
  half.received =
      workload.allocate(model.size(half.tokens * knobs.get("chosen"), model.hidden), kComputing);
  half.arrival = send_and_free(workload, output, half.received);
}

void combine(Workload& workload, Half& half) {
  workload.wait(kComputing, half.arrival);
  workload.run(kComputing, 0, half.received.bytes + half.states.bytes);
  workload.free(half.received);
}

void run_step(Workload& workload, const Transformer& model, const KnobValues& knobs) {
  const std::uint64_t tokens =
      workload.rng().between(knobs.get("tokens-least"), knobs.get("tokens-most"));
  std::array<Half, 2> halves;
  halves[0].tokens = tokens - tokens / 2;
  halves[1].tokens = std::max<std::uint64_t>(1, tokens / 2);
  for (Half& half : halves)
    half.states = workload.allocate(model.size(half.tokens, model.hidden), kComputing);
  for (std::uint64_t layer = 0; layer < model.layers; ++layer) {
    for (Half& half : halves) {
      if (layer != 0) combine(workload, half);
      run_attention(workload, model, {half.tokens, half.tokens, half.tokens, kComputing});
      dispatch(workload, model, knobs, half);
    }
    for (Half& half : halves)
      run_experts(workload, model, knobs, half);
  }
  for (Half& half : halves) {
    combine(workload, half);
    run_head(workload, model, 1, kComputing);
    workload.free(half.states);
  }
}

Status act(const PatternInput& input, Workload& workload) {
  const KnobValues& knobs = input.knobs;
  Result<Transformer> model = read_transformer(knobs);
  if (!model.is_ok()) return std::move(model).status();
  if (Status status = knobs.check_order("tokens-least", "tokens-most"); !status.is_ok()) {
    return status;
  }
  keep_weights(workload, model.value(), WeightParts::kNoFeedForward);
  for (std::uint64_t layer = 0; layer < model.value().layers; ++layer) {
    workload.keep_loaded(
        model.value().size(3 * model.value().hidden, model.value().ffn * knobs.get("experts")));
  }
  for (std::uint64_t step = 0; step < knobs.get("steps") && !workload.is_full(); ++step)
    run_step(workload, model.value(), knobs);
  return Status::ok();
}

}  // namespace

constinit const Pattern kTwoBatchOverlap = {
    "two_batch_overlap", "Two half batches, one computing while the other is sent", "weights",
    kKnobs, act};

}  // namespace quarry::patterns
