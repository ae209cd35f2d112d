// SPDX-License-Identifier: Apache-2.0
// unet: a server that makes images of many resolutions and batch sizes by diffusion. A step goes
// down through levels of half the resolution and more channels, keeping an output of every block
// for the way up (skips); convolutions need workspaces. At the end the latent is decoded to
// pixels, the largest activations of all.
#include <algorithm>

#include "patterns/pattern_table.hpp"
#include "patterns/transformer.hpp"

namespace quarry::patterns {
namespace {

constexpr std::uint64_t kPixelStep = 64;   // resolutions are multiples of this
constexpr std::uint64_t kLatentScale = 8;  // pixels to a side of a latent's element
constexpr std::uint64_t kKernel = 9;       // 3 x 3
constexpr std::uint64_t kBlocks = 2;       // at each level
constexpr std::uint64_t kMostScale = 4;    // of the channels

constexpr Knob kKnobs[] = {
    make_dtype_knob(),
    make_count_knob("images", 48, "Batches of images"),
    {"batch", 4, 1, 256, "images", "Most images in a batch"},
    {"side-least", 512, 64, 8192, "pixels", "Shortest side, rounded down to a multiple of 64"},
    {"side-most", 1536, 64, 8192, "pixels", "Longest side, likewise"},
    {"steps", 8, 1, 1000, "", "Denoising steps of an image"},
    {"channels", 320, 8, 4096, "", "Channels at the first level"},
    {"levels", 4, 1, 6, "", "Levels, each of half the resolution"},
    {"decoder-channels", 128, 8, 4096, "", "Channels at the decoder's last level"},
    {"workspace", 512, 1, 65536, "MiB", "Most workspace of a convolution"}};

struct Shape {
  std::uint64_t batch = 1;
  std::uint64_t height = 0;  // of the latent
  std::uint64_t width = 0;

  std::uint64_t points(std::uint64_t level) const {
    return batch * std::max<std::uint64_t>(1, height >> level) *
           std::max<std::uint64_t>(1, width >> level);
  }
};

class Denoiser {
 public:
  Denoiser(Workload& workload, const KnobValues& knobs)
      : workload_(workload),
        element_(knobs.get("dtype")),
        channels_(knobs.get("channels")),
        levels_(knobs.get("levels")),
        decoder_channels_(knobs.get("decoder-channels")),
        workspace_(knobs.get("workspace") << 20) {}

  void keep_weights() {
    for (std::uint64_t level = 0; level < levels_; ++level) {
      // Two convolutions a block on the way down, and two of joined inputs on the way up.
      for (std::uint64_t i = 0; i < 6 * kBlocks; ++i)
        workload_.keep_loaded(
            multiply(kKernel, count_channels(level), count_channels(level), element_));
      workload_.keep_loaded(multiply(12, count_channels(level), count_channels(level), element_));
    }
  }

  void run_step(const Shape& shape) {
    std::vector<Tensor> skips;
    for (std::uint64_t level = 0; level < levels_; ++level) {
      for (std::uint64_t block = 0; block < kBlocks; ++block)
        skips.push_back(run_block(shape.points(level), count_channels(level)));
    }
    Tensor states = run_block(shape.points(levels_ - 1), count_channels(levels_ - 1));
    for (std::uint64_t level = levels_; level-- > 0;) {
      for (std::uint64_t block = 0; block < kBlocks; ++block) {
        const Tensor joined = workload_.allocate(states.bytes + skips.back().bytes);
        workload_.run(0, 0, 2 * joined.bytes);
        workload_.free(skips.back());
        skips.pop_back();
        workload_.free(states);
        states = run_block(shape.points(level), count_channels(level));
        workload_.free(joined);
      }
    }
    workload_.free(states);
  }

  void decode(const Shape& latent) {
    Shape shape = latent;
    Tensor states = workload_.allocate(multiply(shape.points(0), 4, element_));
    for (std::uint64_t scale = kLatentScale; scale >= 1; scale /= 2) {
      const Tensor next =
          run_block(shape.points(0), decoder_channels_ * std::min(scale, kMostScale));
      workload_.free(states);
      states = next;
      shape.height *= 2;
      shape.width *= 2;
    }
    workload_.free(states);
  }

 private:
  std::uint64_t count_channels(std::uint64_t level) const {
    return channels_ * std::min(std::uint64_t{1} << level, kMostScale);
  }

  // Norm, convolution, norm, convolution; the last output is the caller's.
  Tensor run_block(std::uint64_t points, std::uint64_t channels) {
    Tensor output;
    for (int i = 0; i < 2; ++i) {
      const Tensor normed = workload_.allocate(multiply(points, channels, element_));
      workload_.run(0, 0, 2 * normed.bytes);
      if (i == 1) workload_.free(output);
      const Tensor space = workload_.allocate(std::min(normed.bytes * kKernel / 4, workspace_));
      output = workload_.allocate(normed.bytes);
      workload_.run(0, multiply(2, points, kKernel * channels, channels), 3 * normed.bytes);
      workload_.free(space);
      workload_.free(normed);
    }
    return output;
  }

  Workload& workload_;
  Bytes element_;
  std::uint64_t channels_;
  std::uint64_t levels_;
  std::uint64_t decoder_channels_;
  Bytes workspace_;
};

Status act(const PatternInput& input, Workload& workload) {
  const KnobValues& knobs = input.knobs;
  if (Status status = knobs.check_order("side-least", "side-most"); !status.is_ok()) {
    return status;
  }
  Denoiser denoiser(workload, knobs);
  denoiser.keep_weights();
  Rng& rng = workload.rng();
  const auto draw_side = [&] {
    const std::uint64_t least = knobs.get("side-least") / kPixelStep;
    return rng.between(least, knobs.get("side-most") / kPixelStep) * kPixelStep / kLatentScale;
  };
  for (std::uint64_t i = 0; i < knobs.get("images") && !workload.is_full(); ++i) {
    Shape shape;
    shape.batch = rng.between(1, knobs.get("batch"));
    shape.height = draw_side();
    shape.width = draw_side();
    const Tensor latent = workload.allocate(multiply(shape.points(0), 4, knobs.get("dtype")));
    for (std::uint64_t step = 0; step < knobs.get("steps") && !workload.is_full(); ++step)
      denoiser.run_step(shape);
    denoiser.decode(shape);
    workload.free(latent);
  }
  return Status::ok();
}

}  // namespace

constinit const Pattern kUnet = {"unet", "Images of many resolutions by diffusion", "weights",
                                 kKnobs, act};

}  // namespace quarry::patterns
