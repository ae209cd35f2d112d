// SPDX-License-Identifier: Apache-2.0
// One CUDA graph for each batch size, as an inference engine has them, captured into one shared
// pool and then into pools of their own: what each way reserves, and that every replay computes
// what it should. With `--driver sim` there is no GPU: memory alone is shown, without captures.
//
// Graphs may share a pool because no two of them run at once. The largest is captured first, so
// that the others fit into its memory.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpu.hpp"
#include "quarry/quarry.hpp"

namespace {

constexpr int kDevice = 0;
constexpr std::size_t kSampleWords = std::size_t{1} << 18;  // 1 MiB
constexpr int kLayers = 6;
constexpr std::size_t kBatches[] = {64, 32, 16, 8, 4, 2, 1};

// What one layer does, and all of them.
std::uint32_t calculate_output(std::uint32_t word) {
  for (int layer = 0; layer < kLayers; ++layer)
    word = 3 * word + 1;
  return word;
}

// A model at one batch size. Without a GPU its memory only.
class Captured {
 public:
  Captured(Gpu* gpu, const quarry::Pool& pool, std::size_t batch)
      : gpu_(gpu),
        words_(batch * kSampleWords),
        input_(4 * words_, kDevice, stream())  // outside of the capture: it is filled from outside
  {
    if (gpu_ == nullptr) {
      const auto scope = quarry::PoolScope::for_thread(pool);
      run_layers();
      return;
    }
    const auto scope = quarry::PoolScope::for_capture(pool, stream());
    gpu_->begin_capture();
    run_layers();
    graph_ = gpu_->end_capture();
  }
  ~Captured() {
    if (graph_ != nullptr) gpu_->destroy(graph_);
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  // Words that are wrong.
  std::size_t replay_and_check(std::uint32_t seed) {
    if (gpu_ == nullptr) return 0;
    std::vector<std::uint32_t> words(words_);
    for (std::size_t i = 0; i < words_; ++i)
      words[i] = seed + static_cast<std::uint32_t>(i);
    gpu_->copy_to_device(input_.data(), words);
    gpu_->launch(graph_);
    const std::vector<std::uint32_t> found = gpu_->copy_to_host(output_.data(), words_);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < words_; ++i)
      wrong += found[i] != calculate_output(words[i]) ? 1 : 0;
    return wrong;
  }

 private:
  quarry_stream stream() const { return gpu_ != nullptr ? gpu_->stream() : nullptr; }

  // Each layer's result lives until the next one has been computed; the last one's stays.
  void run_layers() {
    const void* from = input_.data();
    for (int layer = 0; layer < kLayers; ++layer) {
      quarry::UniqueBlock to(4 * words_, kDevice, stream());
      if (gpu_ != nullptr) gpu_->launch_step(to.data(), from, words_);
      output_ = std::move(to);
      from = output_.data();
    }
  }

  Gpu* gpu_;
  std::size_t words_;
  quarry::UniqueBlock input_;
  quarry::UniqueBlock output_;
  CUgraphExec graph_ = nullptr;
};

struct Outcome {
  std::int64_t reserved_bytes = 0;
  std::size_t wrong_words = 0;
  std::size_t replays = 0;
};

Outcome run(Gpu* gpu, bool is_shared) {
  std::vector<quarry::Pool> pools;
  std::vector<std::unique_ptr<Captured>> models;  // before the pools, and after their last launch
  for (const std::size_t batch : kBatches) {
    if (pools.empty() || !is_shared) pools.emplace_back(kDevice);
    models.push_back(std::make_unique<Captured>(gpu, pools.back(), batch));
  }
  Outcome outcome;
  for (const quarry::Pool& pool : pools)
    outcome.reserved_bytes += pool.get_stats().reserved_bytes;
  for (std::uint32_t round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < models.size(); ++i) {
      Captured& model =
          *models[(i * 3 + round) % models.size()];  // in a different order each time
      outcome.wrong_words += model.replay_and_check(1000 * round);
      outcome.replays += gpu != nullptr ? 1 : 0;
    }
  }
  return outcome;
}

int run_program(bool is_simulated) {
  quarry_init_options options = {};
  options.struct_size = sizeof(options);
  options.driver = is_simulated ? QUARRY_DRIVER_SIM : QUARRY_DRIVER_CUDA;
  std::unique_ptr<Gpu> gpu;
  if (!is_simulated) gpu = Gpu::open();
  if (!is_simulated && gpu == nullptr) {
    std::puts("SKIPPED: no GPU here; --driver sim shows the memory without one");
    return 77;
  }
  quarry::check(quarry_init(&options));
  std::size_t wrong_words = 0;
  for (const bool is_shared : {true, false}) {
    const Outcome outcome = run(gpu.get(), is_shared);
    std::printf("%s: %lld MiB reserved for %zu graphs; %zu replays, %zu wrong words\n",
                is_shared ? "one shared pool" : "a pool for each",
                static_cast<long long>(outcome.reserved_bytes >> 20), std::size(kBatches),
                outcome.replays, outcome.wrong_words);
    wrong_words += outcome.wrong_words;
  }
  if (gpu != nullptr) quarry::check(quarry_stream_retire(kDevice, gpu->stream()));
  quarry::check(quarry_shutdown());
  return wrong_words == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool is_simulated = arguments == std::vector<std::string>{"--driver", "sim"};
  if (!arguments.empty() && !is_simulated) {
    std::fprintf(stderr, "usage: %s [--driver sim]\n", argv[0]);
    return 2;
  }
  try {
    return run_program(is_simulated);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
