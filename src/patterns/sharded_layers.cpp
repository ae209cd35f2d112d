// SPDX-License-Identifier: Apache-2.0
// sharded_layers: training with every layer's parameters divided among devices (FSDP). A layer is
// gathered on a communication stream (stream 1) just before it is needed, used on stream 0
// (record_stream) and freed after use, forward and again backward. Activations are recomputed from
// each layer's input; gradients are reduced on stream 1. Sequences have another length each step.
#include <algorithm>
#include <utility>

#include "patterns/pattern_table.hpp"
#include "patterns/transformer.hpp"

namespace quarry::patterns {
namespace {

constexpr Stream kComputing = 0;
constexpr Stream kSending = 1;
constexpr Bytes kFloatBytes = 4;

constexpr Knob kKnobs[] = {
    make_layers_knob(24),
    make_hidden_knob(4096),
    make_heads_knob(32),
    make_kv_heads_knob(8),
    make_ffn_knob(14336),
    make_vocab_knob(32000),
    make_dtype_knob(),
    {"batch", 2, 1, 4096, "sequences", "Sequences in a batch"},
    {"devices", 8, 1, 4096, "", "Devices that share the parameters"},
    {"prefetch", 1, 0, 256, "layers", "Layers that are gathered ahead of their use"},
    make_count_knob("steps", 16, "Steps"),
    make_tokens_knob("length-least", 512, "Shortest sequences of a step"),
    make_tokens_knob("length-most", 4096, "Longest sequences of a step"),
    make_link_knob(300)};

class Trainer {
 public:
  Trainer(Workload& workload, const Transformer& model, const KnobValues& knobs)
      : workload_(workload),
        model_(model),
        devices_(knobs.get("devices")),
        prefetch_(knobs.get("prefetch")),
        gathered_(model.layers) {}

  void keep_shards() {
    for (std::uint64_t layer = 0; layer < model_.layers; ++layer) {
      workload_.keep_loaded(shard_size());
      // The optimizer's own: a copy of the weights and two moments, all in fp32.
      for (int i = 0; i < 3; ++i)
        workload_.keep(multiply(shard_size() / model_.element, kFloatBytes));
    }
    workload_.keep_loaded(model_.size(model_.vocab, model_.hidden));
  }

  void run_step(std::uint64_t tokens, std::uint64_t length) {
    const Tokens work{tokens, length, tokens, kComputing};
    Tensor states = workload_.allocate(states_size(tokens));
    std::vector<Tensor> inputs;
    for (std::uint64_t layer = 0; layer < model_.layers; ++layer) {
      for (std::uint64_t i = layer; i <= std::min(layer + prefetch_, model_.layers - 1); ++i)
        gather(i);
      use(layer);
      inputs.push_back(states);
      states = workload_.allocate(states_size(tokens));
      run_layer(workload_, model_, work);
      release(layer);
    }
    Tensor gradient = run_loss(tokens, states);
    std::vector<Tensor> shards;
    for (std::uint64_t layer = model_.layers; layer-- > 0;) {
      for (std::uint64_t i = 0; i <= std::min(prefetch_, layer); ++i)
        gather(layer - i);
      use(layer);
      gradient = run_backward(work, inputs[layer], gradient);
      shards.push_back(reduce(layer));
    }
    workload_.free(gradient);
    workload_.wait(kComputing, workload_.now(kSending));
    update(shards);
  }

 private:
  struct Gathered {
    Tensor weights;
    Moment arrival = 0;
    bool is_there = false;
  };

  Bytes shard_size() const { return (model_.layer_size() + devices_ - 1) / devices_; }
  Bytes states_size(std::uint64_t tokens) const { return model_.size(tokens, model_.hidden); }

  void gather(std::uint64_t layer) {
    Gathered& entry = gathered_[layer];
    if (entry.is_there) return;
    entry.weights = workload_.allocate(model_.layer_size(), kSending);
    workload_.send(kSending, model_.layer_size() - shard_size());
    entry.arrival = workload_.now(kSending);
    entry.is_there = true;
  }

  void use(std::uint64_t layer) {
    workload_.wait(kComputing, gathered_[layer].arrival);
    workload_.record_stream(gathered_[layer].weights, kComputing);
  }

  // The next layer is not gathered before this one has been used: else the host would gather all.
  void release(std::uint64_t layer) {
    workload_.free(gathered_[layer].weights);
    gathered_[layer].is_there = false;
    workload_.wait(kSending, workload_.now(kComputing));
  }

  Tensor run_loss(std::uint64_t tokens, const Tensor& states) {
    const Tensor logits = workload_.allocate(multiply(tokens, model_.vocab, kFloatBytes));
    run_product(workload_, model_.element, tokens, model_.hidden, model_.vocab, kComputing);
    const Tensor logit_gradient = workload_.allocate(logits.bytes);
    workload_.run(kComputing, 0, multiply(3, logits.bytes));
    workload_.free(logits);
    const Tensor gradient = workload_.allocate(states_size(tokens));
    run_product(workload_, model_.element, tokens, model_.vocab, model_.hidden, kComputing);
    workload_.free(logit_gradient);
    workload_.free(states);
    return gradient;
  }

  // Computes the layer's activations once more and keeps them until their gradients are there.
  Tensor run_backward(const Tokens& work, const Tensor& input, const Tensor& gradient) {
    std::vector<Tensor> kept;
    run_layer(workload_, model_, work, [&] {
      kept.push_back(workload_.allocate(states_size(work.count)));
      kept.push_back(workload_.allocate(model_.size(work.count, 2 * model_.ffn)));
      kept.push_back(workload_.allocate(model_.size(work.count, model_.ffn)));
    });
    for (; !kept.empty(); kept.pop_back()) {
      const Tensor inner = workload_.allocate(kept.back().bytes);
      workload_.run(kComputing, multiply(2, work.count, model_.layer_size() / model_.element),
                    2 * inner.bytes);
      workload_.free(kept.back());
      workload_.free(inner);
    }
    const Tensor next = workload_.allocate(states_size(work.count));
    workload_.run(kComputing, 0, multiply(3, next.bytes));
    workload_.free(gradient);
    workload_.free(input);
    return next;
  }

  Tensor reduce(std::uint64_t layer) {
    const Tensor whole = workload_.allocate(model_.layer_size(), kComputing);
    workload_.run(kComputing, 0, whole.bytes);
    release(layer);
    const Tensor shard = workload_.allocate(shard_size(), kSending);
    workload_.record_stream(whole, kSending);
    workload_.send(kSending, whole.bytes - shard.bytes);
    workload_.free(whole);
    return shard;
  }

  void update(const std::vector<Tensor>& shards) {
    for (const Tensor& shard : shards) {
      const Tensor change =
          workload_.allocate(multiply(shard.bytes / model_.element, kFloatBytes));
      workload_.run(kComputing, 0, multiply(4, change.bytes));
      workload_.free(change);
    }
    for (const Tensor& shard : shards)
      workload_.free_by(shard, kComputing);
    workload_.wait(kSending, workload_.now(kComputing));
  }

  Workload& workload_;
  const Transformer& model_;
  std::uint64_t devices_;
  std::uint64_t prefetch_;
  std::vector<Gathered> gathered_;
};

Status act(const PatternInput& input, Workload& workload) {
  const KnobValues& knobs = input.knobs;
  Result<Transformer> model = read_transformer(knobs);
  if (!model.is_ok()) return std::move(model).status();
  if (Status status = knobs.check_order("length-least", "length-most"); !status.is_ok()) {
    return status;
  }
  Trainer trainer(workload, model.value(), knobs);
  trainer.keep_shards();
  workload.wait(kSending, workload.now(kComputing));
  for (std::uint64_t step = 0; step < knobs.get("steps") && !workload.is_full(); ++step) {
    const std::uint64_t length =
        workload.rng().between(knobs.get("length-least"), knobs.get("length-most"));
    trainer.run_step(length * knobs.get("batch"), length);
  }
  return Status::ok();
}

}  // namespace

constinit const Pattern kShardedLayers = {
    "sharded_layers", "Training with sharded layers, gathered on demand (FSDP)",
    "the shards, the optimizer's state and the embedding", kKnobs, act};

}  // namespace quarry::patterns
