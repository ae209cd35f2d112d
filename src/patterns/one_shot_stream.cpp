// SPDX-License-Identifier: Apache-2.0
// one_shot_stream: a program that does some of its work on a stream that it never uses again: a
// warm-up, the loading of an adapter, a preprocessing step with a stream of its own. What is freed
// there serves no other stream in an allocator that keeps blocks for their stream, while the main
// stream goes on with requests of all sizes.
#include <utility>

#include "patterns/pattern_table.hpp"
#include "patterns/transformer.hpp"

namespace quarry::patterns {
namespace {

constexpr Knob kKnobs[] = {
    make_layers_knob(16),
    make_hidden_knob(2048),
    make_heads_knob(32),
    make_kv_heads_knob(8),
    make_ffn_knob(8192),
    make_vocab_knob(128256),
    make_dtype_knob(),
    {"shots", 6, 1, 60, "", "Streams that are used once"},
    {"shot-mib", 1024, 1, 1'000'000, "MiB", "Memory that each of them uses"},
    {"pieces", 16, 1, 1024, "", "Allocations that this is divided into"},
    make_count_knob("steps", 24, "Steps on the main stream after each"),
    make_tokens_knob("tokens-least", 256, "Fewest tokens of a step"),
    make_tokens_knob("tokens-most", 16384, "Most tokens of a step")};

// Pieces of 0.5 to 1.5 times what the rest is on average; the last takes what is left.
void shoot(Workload& workload, const KnobValues& knobs, Stream stream) {
  Bytes left = knobs.get("shot-mib") << 20;
  workload.wait(stream, workload.now(0));
  std::vector<Tensor> pieces;
  for (std::uint64_t i = knobs.get("pieces"); i > 0; --i) {
    const Bytes mean = left / i;
    const Bytes bytes = i == 1 ? left : mean / 100 * workload.rng().between(50, 150);
    pieces.push_back(workload.allocate(bytes, stream));
    workload.run(stream, 0, 2 * bytes);
    left -= bytes;
  }
  for (const Tensor& piece : pieces)
    workload.free(piece);
  workload.wait(0, workload.now(stream));
}

Status act(const PatternInput& input, Workload& workload) {
  const KnobValues& knobs = input.knobs;
  Result<Transformer> model = read_transformer(knobs);
  if (!model.is_ok()) return std::move(model).status();
  if (Status status = knobs.check_order("tokens-least", "tokens-most"); !status.is_ok()) {
    return status;
  }
  keep_weights(workload, model.value());
  for (Stream shot = 1; shot <= knobs.get("shots"); ++shot) {
    shoot(workload, knobs, shot);
    for (std::uint64_t step = 0; step < knobs.get("steps") && !workload.is_full(); ++step) {
      const std::uint64_t count =
          workload.rng().between(knobs.get("tokens-least"), knobs.get("tokens-most"));
      run_model(workload, model.value(), {count, count, count, 0}, 1);
    }
  }
  return Status::ok();
}

}  // namespace

constinit const Pattern kOneShotStream = {"one_shot_stream",
                                          "Streams used once, whose freed memory is stranded",
                                          "weights", kKnobs, act};

}  // namespace quarry::patterns
