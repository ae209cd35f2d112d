// SPDX-License-Identifier: Apache-2.0
// server_threads: a server of embeddings. Each of its threads has a stream of its own and runs
// requests of any length on it; what comes out is handed to one more thread, which sends it off on
// its own stream (record_stream) and frees it there: blocks are freed by another thread than the
// one that allocated them. The threads share the device evenly.
#include <algorithm>
#include <utility>

#include "patterns/pattern_table.hpp"
#include "patterns/transformer.hpp"

namespace quarry::patterns {
namespace {

constexpr Bytes kFloatBytes = 4;
constexpr Moment kNsPerUs = 1000;

constexpr Knob kKnobs[] = {
    make_layers_knob(12),
    make_hidden_knob(1024),
    make_heads_knob(16),
    make_kv_heads_knob(16),
    make_ffn_knob(4096),
    make_vocab_knob(30592),
    make_dtype_knob(),
    {"threads", 8, 1, 62, "", "Threads that run requests"},
    make_count_knob("requests", 40, "Requests of each thread"),
    {"batch", 16, 1, 4096, "sequences", "Most sequences in a request"},
    make_tokens_knob("length-least", 64, "Shortest sequences of a request"),
    make_tokens_knob("length-most", 1024, "Longest sequences of a request"),
    {"pause", 2000, 0, 1'000'000, "us", "Mean time between a thread's requests"},
    make_link_knob(25)};

struct Output {
  Tensor tensor;
  Moment ready = 0;
};

void run_thread(Workload& workload, const Transformer& model, const KnobValues& knobs,
                Stream stream, std::vector<Output>& results) {
  // Of its own: what one thread draws has no say in what the others do.
  Rng rng = workload.rng().fork();
  workload.assign_thread(stream, stream);
  for (std::uint64_t i = 0; i < knobs.get("requests") && !workload.is_full(); ++i) {
    workload.wait(stream, workload.now(stream) + rng.exponential(knobs.get("pause")) * kNsPerUs);
    const std::uint64_t batch = rng.between(1, knobs.get("batch"));
    const std::uint64_t length = rng.between(knobs.get("length-least"), knobs.get("length-most"));
    const std::uint64_t count = batch * length;
    const Tensor states = workload.allocate(model.size(count, model.hidden), stream);
    for (std::uint64_t layer = 0; layer < model.layers; ++layer)
      run_layer(workload, model, {count, length, count, stream});
    const Tensor embeddings =
        workload.allocate(multiply(count, model.hidden, kFloatBytes), stream);
    workload.run(stream, 0, states.bytes + embeddings.bytes);
    workload.free(states);
    results.push_back({embeddings, workload.now(stream)});
  }
}

Status act(const PatternInput& input, Workload& workload) {
  const KnobValues& knobs = input.knobs;
  Result<Transformer> model = read_transformer(knobs);
  if (!model.is_ok()) return std::move(model).status();
  if (Status status = knobs.check_order("length-least", "length-most"); !status.is_ok()) {
    return status;
  }
  const auto threads = static_cast<Stream>(knobs.get("threads"));
  keep_weights(workload, model.value());
  const Moment loaded = workload.now(0);
  workload.share_device(threads);
  std::vector<Output> results;
  for (Stream stream = 0; stream < threads; ++stream) {
    workload.wait(stream, loaded);
    run_thread(workload, model.value(), knobs, stream, results);
  }
  std::stable_sort(results.begin(), results.end(),
                   [](const Output& a, const Output& b) { return a.ready < b.ready; });
  const Stream sender = threads;
  workload.assign_thread(sender, threads);
  for (const Output& result : results) {
    workload.wait(sender, result.ready);
    workload.record_stream_by(result.tensor, sender, sender);
    workload.send(sender, result.tensor.bytes);
    workload.free_by(result.tensor, sender);
  }
  return Status::ok();
}

}  // namespace

constinit const Pattern kServerThreads = {
    "server_threads", "Threads on streams of their own, whose results another one frees",
    "weights", kKnobs, act};

}  // namespace quarry::patterns
