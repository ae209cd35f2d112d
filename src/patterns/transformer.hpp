// SPDX-License-Identifier: Apache-2.0
// A decoder-only transformer as a program runs it layer by layer: its sizes, its weights, and the
// activations that a layer allocates and frees. Attention is fused: no scores in memory unless a
// pattern adds them. What happens to the KV cache is the pattern's business.
#pragma once

#include <cstdint>
#include <functional>

#include "base/status.hpp"
#include "patterns/knob.hpp"
#include "patterns/workload.hpp"

namespace quarry::patterns {

inline constexpr KnobChoice kDtypes[] = {{"fp8", 1}, {"bf16", 2}, {"fp16", 2}, {"fp32", 4}};

constexpr Knob make_dtype_knob() {
  return {"dtype", 2, 1, 4, "", "Type of weights and activations", kDtypes};
}
constexpr Knob make_layers_knob(std::uint64_t value) {
  return {"layers", value, 1, 256, "", "Layers of the model"};
}
constexpr Knob make_hidden_knob(std::uint64_t value) {
  return {"hidden", value, 64, 65536, "elements", "Hidden size"};
}
constexpr Knob make_heads_knob(std::uint64_t value) {
  return {"heads", value, 1, 256, "", "Query heads; they divide the hidden size"};
}
constexpr Knob make_kv_heads_knob(std::uint64_t value) {
  return {"kv-heads", value, 1, 256, "", "Key and value heads; they divide the query heads"};
}
constexpr Knob make_ffn_knob(std::uint64_t value) {
  return {"ffn", value, 64, 262144, "elements", "Inner size of the feed-forward part"};
}
constexpr Knob make_vocab_knob(std::uint64_t value) {
  return {"vocab", value, 256, 1'000'000, "tokens", "Size of the vocabulary"};
}
constexpr Knob make_link_knob(std::uint64_t value) {
  return {"link-gb-per-s", value, 1, 1'000'000, "10^9 bytes/s", "Traffic to the other devices"};
}

constexpr Knob make_batch_knob(std::uint64_t value) {
  return {"batch", value, 1, 4096, "sequences", "Sequences in a batch"};
}
// At most this many tokens in a sequence or a step.
inline constexpr std::uint64_t kMostTokens = 1u << 20;
constexpr Knob make_tokens_knob(std::string_view name, std::uint64_t value,
                                std::string_view text) {
  return {name, value, 1, kMostTokens, "tokens", text};
}
constexpr Knob make_count_knob(std::string_view name, std::uint64_t value, std::string_view text) {
  return {name, value, 1, 100'000, "", text};
}

struct Transformer {
  std::uint64_t layers = 0;
  std::uint64_t hidden = 0;
  std::uint64_t heads = 0;
  std::uint64_t kv_heads = 0;
  std::uint64_t ffn = 0;
  std::uint64_t vocab = 0;
  Bytes element = 0;  // bytes of one

  // All heads together.
  std::uint64_t kv_width() const { return hidden / heads * kv_heads; }
  // Of `tokens` vectors of `width` elements.
  Bytes size(std::uint64_t tokens, std::uint64_t width) const {
    return multiply(tokens, width, element);
  }
  // Keys and values of one layer.
  Bytes kv_size(std::uint64_t tokens) const { return multiply(2, size(tokens, kv_width())); }
  Bytes layer_size() const;
};

// From the knobs made above, all of which the pattern must have. Fails where heads do not divide.
Result<Transformer> read_transformer(const KnobValues& knobs);

// One piece of work for a model: what a step has to do.
struct Tokens {
  std::uint64_t count = 0;    // of the step, all sequences together
  std::uint64_t context = 0;  // tokens that each of them looks at, its own included
  std::uint64_t cached = 0;   // tokens of KV that are read, all sequences together
  Stream stream = 0;
};

// kNoFeedForward: the pattern has its own in its place.
enum class WeightParts { kAll, kNoFeedForward };

// Embedding, layers and head, allocated for good.
void keep_weights(Workload& workload, const Transformer& model,
                  WeightParts parts = WeightParts::kAll);

// `rows` vectors of `inner` elements times a matrix of `inner` x `outer`: the time only.
void run_product(Workload& workload, Bytes element, std::uint64_t rows, std::uint64_t inner,
                 std::uint64_t outer, Stream stream);

// One layer; the hidden states, which the caller holds, are changed in place. `attend` is called
// when queries, keys and values are there, before attention.
void run_layer(Workload& workload, const Transformer& model, const Tokens& tokens,
               const std::function<void()>& attend = {});
// The halves of it.
void run_attention(Workload& workload, const Transformer& model, const Tokens& tokens,
                   const std::function<void()>& attend = {});
void run_feed_forward(Workload& workload, const Transformer& model, const Tokens& tokens);

// Logits of `rows` positions in fp32, and the sampled tokens.
void run_head(Workload& workload, const Transformer& model, std::uint64_t rows, Stream stream = 0);

// Hidden states, all layers and the head for the last position of each of `sequences`.
void run_model(Workload& workload, const Transformer& model, const Tokens& tokens,
               std::uint64_t sequences, const std::function<void(std::uint64_t)>& attend = {});

}  // namespace quarry::patterns
