// SPDX-License-Identifier: Apache-2.0
// continuous_batching: a server that lets requests into the running batch between steps and out of
// it when they are done. A step runs the prompts of those that came in and one token of each of
// the others. Each request has its keys and values, of all layers, in one block that moves to a
// larger one when it is full. Requests come from a file or, without one, at random (a Poisson
// process). With several engines, each has a stream and a thread of its own, and every n-th
// request.
#include <algorithm>
#include <string>
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
    {"engines", 1, 1, 32, "", "Engines, each on a stream of its own"},
    {"batch", 48, 1, 4096, "sequences", "Most requests that an engine runs at once"},
    make_tokens_knob("step-tokens", 4096,
                     "Most prompt tokens in a step; a longer prompt runs alone"),
    make_tokens_knob("grow", 64, "Tokens by which the cache of a request grows"),
    make_count_knob("requests", 120, "Requests; not with --request-file"),
    {"rate", 400, 1, 1'000'000, "requests/s", "Their mean rate; not with --request-file"},
    make_tokens_knob("prompt-tokens", 1024, "Mean of their prompts; not with --request-file"),
    make_tokens_knob("output-tokens", 48, "Mean of their outputs; not with --request-file")};

constexpr std::string_view kKnobsOfMadeRequests[] = {"requests", "rate", "prompt-tokens",
                                                     "output-tokens"};

struct Running {
  Tensor cache;
  std::uint64_t length = 0;    // tokens
  std::uint64_t capacity = 0;  // tokens that the cache holds
  std::uint64_t left = 0;      // tokens still to be generated
};

std::vector<Request> make_requests(Rng& rng, const KnobValues& knobs) {
  constexpr std::uint64_t kUsPerS = 1'000'000;
  const auto draw_tokens = [&rng](std::uint64_t mean) {
    return std::min(1 + rng.exponential(mean - 1), Request::kMostTokens);
  };
  std::vector<Request> requests;
  std::uint64_t now_us = 0;
  for (std::uint64_t i = 0; i < knobs.get("requests"); ++i) {
    now_us += rng.exponential(kUsPerS / knobs.get("rate"));
    const std::uint64_t prompt = draw_tokens(knobs.get("prompt-tokens"));
    requests.push_back({now_us, prompt, draw_tokens(knobs.get("output-tokens"))});
  }
  return requests;
}

class Engine {
 public:
  Engine(Workload& workload, const Transformer& model, const KnobValues& knobs, Stream stream)
      : workload_(workload),
        model_(model),
        most_running_(knobs.get("batch")),
        most_prompt_tokens_(knobs.get("step-tokens")),
        grow_(knobs.get("grow")),
        stream_(stream),
        start_(workload.now(stream)) {}

  void serve(const std::vector<Request>& requests) {
    std::size_t next = 0;
    while ((next < requests.size() || !running_.empty()) && !workload_.is_full()) {
      if (running_.empty()) workload_.wait(stream_, get_arrival(requests[next]));
      const std::uint64_t decoded = running_.size();
      const std::uint64_t prompt_tokens = admit(requests, next);
      run_step(prompt_tokens + decoded);
      finish_step();
    }
  }

 private:
  static constexpr Moment kNsPerUs = 1000;

  Moment get_arrival(const Request& request) const {
    return start_ + request.arrival_us * kNsPerUs;
  }
  Bytes size_cache(std::uint64_t tokens) const {
    return multiply(model_.layers, model_.kv_size(tokens));
  }

  std::uint64_t admit(const std::vector<Request>& requests, std::size_t& next) {
    std::uint64_t tokens = 0;
    for (; next < requests.size() && running_.size() < most_running_; ++next) {
      const Request& request = requests[next];
      if (get_arrival(request) > workload_.now(stream_)) break;
      if (tokens != 0 && tokens + request.prompt_tokens > most_prompt_tokens_) break;
      tokens += request.prompt_tokens;
      Running& added = running_.emplace_back();
      added.length = request.prompt_tokens;
      added.capacity = (request.prompt_tokens / grow_ + 1) * grow_;
      added.left = request.output_tokens;
      added.cache = workload_.allocate(size_cache(added.capacity), stream_);
    }
    return tokens;
  }

  void run_step(std::uint64_t count) {
    std::uint64_t cached = 0;
    for (const Running& request : running_)
      cached += request.length;
    const std::uint64_t context = cached / running_.size();
    run_model(workload_, model_, {count, context, cached, stream_}, running_.size());
  }

  void finish_step() {
    for (Running& request : running_) {
      --request.left;
      ++request.length;
      if (request.left == 0) {
        workload_.free(request.cache);
      } else if (request.length > request.capacity) {
        grow(request);
      }
    }
    std::erase_if(running_, [](const Running& request) { return request.left == 0; });
  }

  void grow(Running& request) {
    request.capacity += grow_;
    const Tensor larger = workload_.allocate(size_cache(request.capacity), stream_);
    workload_.run(stream_, 0, multiply(2, request.cache.bytes));
    workload_.free(request.cache);
    request.cache = larger;
  }

  Workload& workload_;
  const Transformer& model_;
  std::uint64_t most_running_;
  std::uint64_t most_prompt_tokens_;
  std::uint64_t grow_;
  Stream stream_;
  Moment start_;  // when the server is ready: what arrivals count from
  std::vector<Running> running_;
};

Status check_source(const PatternInput& input) {
  if (!input.requests.has_value()) return Status::ok();
  for (const std::string_view name : kKnobsOfMadeRequests) {
    if (!input.knobs.is_set(name)) continue;
    return Status(StatusCode::kInvalidArgument,
                  "--" + std::string(name) + ": not together with --request-file, which says it");
  }
  return Status::ok();
}

Status act(const PatternInput& input, Workload& workload) {
  const KnobValues& knobs = input.knobs;
  Result<Transformer> model = read_transformer(knobs);
  if (!model.is_ok()) return std::move(model).status();
  if (Status status = check_source(input); !status.is_ok()) return status;
  const std::vector<Request> requests =
      input.requests.has_value() ? *input.requests : make_requests(workload.rng(), knobs);
  keep_weights(workload, model.value());
  const std::uint64_t engines = knobs.get("engines");
  const Moment loaded = workload.now(0);
  workload.share_device(engines);
  for (Stream stream = 0; stream < engines; ++stream) {
    workload.assign_thread(stream, stream);
    workload.wait(stream, loaded);
    std::vector<Request> own;
    for (std::size_t i = stream; i < requests.size(); i += engines)
      own.push_back(requests[i]);
    Engine(workload, model.value(), knobs, stream).serve(own);
  }
  return Status::ok();
}

}  // namespace

constinit const Pattern kContinuousBatching = {"continuous_batching",
                                               "A server whose requests come and go between steps",
                                               "weights",
                                               kKnobs,
                                               act,
                                               true};

}  // namespace quarry::patterns
