// SPDX-License-Identifier: Apache-2.0
// The progress line.
#include "tools/progress_bar.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace quarry::tools {
namespace {

constexpr auto kFirstPaint = std::chrono::milliseconds(500);
constexpr auto kPaintInterval = std::chrono::milliseconds(100);
constexpr int kBarWidth = 30;

}  // namespace

ProgressBar::ProgressBar()
    : next_paint_(std::chrono::steady_clock::now() + kFirstPaint),
      is_terminal_(::isatty(STDERR_FILENO) == 1) {}

void ProgressBar::show(const std::string& label, double fraction) {
  if (!is_terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_paint_) return;
  next_paint_ = now + kPaintInterval;
  is_painted_ = true;
  const double part = std::clamp(fraction, 0.0, 1.0);
  const int filled = static_cast<int>(part * kBarWidth);
  const std::string bar(static_cast<std::size_t>(filled), '#');
  std::fprintf(stderr, "\r\x1b[K%s [%-*s] %3d %%", label.c_str(), kBarWidth, bar.c_str(),
               static_cast<int>(part * 100));
}

void ProgressBar::clear() {
  if (is_painted_) std::fputs("\r\x1b[K", stderr);
  is_painted_ = false;
}

}  // namespace quarry::tools
