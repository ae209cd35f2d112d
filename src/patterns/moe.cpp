// SPDX-License-Identifier: Apache-2.0
// moe: inference with a mixture of experts. The router sends each token to a few experts; each
// expert gathers its tokens, runs and scatters them, so its buffers have sizes of its own in every
// layer of every step. How uneven the experts' shares are is a knob.
#include <utility>

#include "patterns/pattern_table.hpp"
#include "patterns/transformer.hpp"

namespace quarry::patterns {
namespace {

constexpr std::uint64_t kShareUnit = 1000;

constexpr Knob kKnobs[] = {
    make_layers_knob(12),
    make_hidden_knob(2048),
    make_heads_knob(32),
    make_kv_heads_knob(8),
    {"ffn", 1408, 64, 262144, "elements", "Inner size of an expert"},
    make_vocab_knob(32000),
    make_dtype_knob(),
    {"experts", 16, 1, 1024, "", "Experts of a layer"},
    {"chosen", 4, 1, 64, "", "Experts that a token goes to"},
    {"skew", 80, 0, 100, "%", "Part of the tokens that is shared out unevenly"},
    make_count_knob("steps", 30, "Steps"),
    make_tokens_knob("tokens-least", 256, "Fewest tokens of a step"),
    make_tokens_knob("tokens-most", 32768, "Most tokens of a step")};

// Exponentially distributed weights make every division of the uneven part equally likely.
std::vector<std::uint64_t> share_out(Rng& rng, std::uint64_t tokens, std::uint64_t experts,
                                     std::uint64_t skew) {
  const std::uint64_t uneven = tokens * skew / 100;
  std::vector<std::uint64_t> shares;
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < experts; ++i) {
    shares.push_back(1 + rng.exponential(kShareUnit));
    sum += shares.back();
  }
  std::uint64_t left = tokens;
  for (std::uint64_t& share : shares) {
    share = uneven * share / sum + (tokens - uneven) / experts;
    left -= share;
  }
  shares[rng.below(experts)] += left;  // what rounding left over
  return shares;
}

void run_expert(Workload& workload, const Transformer& model, std::uint64_t tokens) {
  const Tensor gathered = workload.allocate(model.size(tokens, model.hidden));
  workload.run(0, 0, 2 * gathered.bytes);
  const Tensor gates = workload.allocate(model.size(tokens, 2 * model.ffn));
  run_product(workload, model.element, tokens, model.hidden, 2 * model.ffn, 0);
  const Tensor inner = workload.allocate(model.size(tokens, model.ffn));
  workload.run(0, 0, gates.bytes + inner.bytes);
  workload.free(gates);
  const Tensor output = workload.allocate(model.size(tokens, model.hidden));
  run_product(workload, model.element, tokens, model.ffn, model.hidden, 0);
  workload.free(inner);
  workload.free(gathered);
  workload.run(0, 0, 2 * output.bytes);
  workload.free(output);
}

void run_experts(Workload& workload, const Transformer& model, const KnobValues& knobs,
                 std::uint64_t tokens) {
  const std::uint64_t experts = knobs.get("experts");
  const std::uint64_t sent = tokens * knobs.get("chosen");
  const Tensor scores = workload.allocate(multiply(tokens, experts, 4));
  run_product(workload, model.element, tokens, model.hidden, experts, 0);
  const Tensor order = workload.allocate(multiply(sent, 8));
  workload.run(0, 0, 2 * scores.bytes);
  workload.free(scores);
  const Tensor sum = workload.allocate(model.size(tokens, model.hidden));
  for (const std::uint64_t count : share_out(workload.rng(), sent, experts, knobs.get("skew"))) {
    if (count != 0) run_expert(workload, model, count);
  }
  workload.free(order);
  workload.free(sum);
}

void keep_experts(Workload& workload, const Transformer& model, const KnobValues& knobs) {
  for (std::uint64_t i = 0; i < model.layers && !workload.is_full(); ++i) {
    for (std::uint64_t expert = 0; expert < knobs.get("experts"); ++expert)
      workload.keep_loaded(model.size(3 * model.hidden, model.ffn));
  }
}

Status act(const PatternInput& input, Workload& workload) {
  const KnobValues& knobs = input.knobs;
  Result<Transformer> model = read_transformer(knobs);
  if (!model.is_ok()) return std::move(model).status();
  if (Status status = knobs.check_order("tokens-least", "tokens-most"); !status.is_ok()) {
    return status;
  }
  if (Status status = knobs.check_order("chosen", "experts"); !status.is_ok()) return status;
  keep_weights(workload, model.value(), WeightParts::kNoFeedForward);
  keep_experts(workload, model.value(), knobs);
  for (std::uint64_t step = 0; step < knobs.get("steps") && !workload.is_full(); ++step) {
    const std::uint64_t count =
        workload.rng().between(knobs.get("tokens-least"), knobs.get("tokens-most"));
    const Tensor states = workload.allocate(model.value().size(count, model.value().hidden));
    for (std::uint64_t layer = 0; layer < model.value().layers; ++layer) {
      run_attention(workload, model.value(), {count, count, count, 0});
      run_experts(workload, model.value(), knobs, count);
    }
    run_head(workload, model.value(), 1);
    workload.free(states);
  }
  return Status::ok();
}

}  // namespace

constinit const Pattern kMoe = {"moe", "A mixture of experts, whose token counts vary", "weights",
                                kKnobs, act};

}  // namespace quarry::patterns
