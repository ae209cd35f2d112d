// SPDX-License-Identifier: Apache-2.0
// batch_wobble: batches of N, N - 1 and N + 1 sequences in turn, as a data loader or a scheduler
// that drops and adds a request makes them. Each batch has a cache of its own for its whole
// length; what one batch frees is a little too small or too large for the next.
#include <utility>

#include "patterns/pattern_table.hpp"
#include "patterns/transformer.hpp"

namespace quarry::patterns {
namespace {

constexpr Knob kKnobs[] = {
    make_layers_knob(24),
    make_hidden_knob(2048),
    make_heads_knob(16),
    make_kv_heads_knob(16),
    make_ffn_knob(5504),
    make_vocab_knob(50304),
    make_dtype_knob(),
    {"batch", 32, 2, 4096, "sequences", "The N of N, N - 1 and N + 1"},
    make_count_knob("batches", 24, "Batches, one after the other"),
    make_tokens_knob("length", 1024, "Tokens that the cache of a sequence holds"),
    make_tokens_knob("output-least", 2, "Fewest tokens generated in a batch"),
    make_tokens_knob("output-most", 12, "Most tokens generated in a batch")};

void run_batch(Workload& workload, const Transformer& model, std::uint64_t batch,
               std::uint64_t length, std::uint64_t output) {
  std::vector<Tensor> cache;
  for (std::uint64_t layer = 0; layer < model.layers; ++layer)
    cache.push_back(workload.allocate(model.kv_size(batch * length)));
  const std::uint64_t prompt = length - output + 1;
  for (std::uint64_t step = 0; step < output && !workload.is_full(); ++step) {
    const std::uint64_t count = step == 0 ? batch * prompt : batch;
    run_model(workload, model, {count, prompt + step, batch * (prompt + step), 0}, batch);
  }
  for (const Tensor& tensor : cache)
    workload.free(tensor);
}

Status act(const PatternInput& input, Workload& workload) {
  const KnobValues& knobs = input.knobs;
  Result<Transformer> model = read_transformer(knobs);
  if (!model.is_ok()) return std::move(model).status();
  for (const auto& [least, most] :
       {std::pair("output-least", "output-most"), std::pair("output-most", "length")}) {
    if (Status status = knobs.check_order(least, most); !status.is_ok()) return status;
  }
  keep_weights(workload, model.value());
  const std::uint64_t middle = knobs.get("batch");
  const std::uint64_t sizes[] = {middle, middle - 1, middle + 1};
  for (std::uint64_t i = 0; i < knobs.get("batches") && !workload.is_full(); ++i) {
    const std::uint64_t output =
        workload.rng().between(knobs.get("output-least"), knobs.get("output-most"));
    run_batch(workload, model.value(), sizes[i % 3], knobs.get("length"), output);
  }
  return Status::ok();
}

}  // namespace

constinit const Pattern kBatchWobble = {
    "batch_wobble", "Batches of N, N - 1 and N + 1 sequences, a cache for each", "weights", kKnobs,
    act};

}  // namespace quarry::patterns
