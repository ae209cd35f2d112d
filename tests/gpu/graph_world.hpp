// SPDX-License-Identifier: Apache-2.0
// Tensors of 32-bit words and graphs over them, as a program makes them: memory of Quarry's, work
// on one stream, captures into private pools. Device 0.
#pragma once

#include <memory>
#include <utility>

#include "tests/gpu/gpu_device.hpp"

namespace quarry::gpu {

// Freed when it goes, as a tensor is.
class Tensor {
 public:
  Tensor(Allocator& allocator, StreamRef stream, std::uint64_t count)
      : allocator_(&allocator), count_(count) {
    const auto address = allocator.allocate(stream, count * 4);
    EXPECT_TRUE(address.is_ok()) << address.status().message();
    if (address.is_ok()) address_ = address.value();
  }
  ~Tensor() { reset(); }
  Tensor(Tensor&& other) noexcept
      : allocator_(other.allocator_),
        address_(std::exchange(other.address_, 0)),
        count_(other.count_) {}
  Tensor& operator=(Tensor&& other) noexcept {
    if (this == &other) return *this;
    reset();
    address_ = std::exchange(other.address_, 0);
    count_ = other.count_;
    return *this;
  }

  Address address() const { return address_; }
  std::uint64_t count() const { return count_; }
  std::uint64_t sum() const { return gpu::sum(address_, count_); }
  void reset() {
    if (address_ == 0) return;
    EXPECT_TRUE(allocator_->free(std::exchange(address_, 0)).is_ok());
  }

 private:
  Allocator* allocator_;
  Address address_ = 0;
  std::uint64_t count_ = 0;
};

class GraphWorld {
 public:
  explicit GraphWorld(Device& device) : device_(device) {}
  ~GraphWorld() { device_.end_stream(stream_); }

  Device& device() { return device_; }
  Allocator& allocator() { return device_.allocator(); }
  StreamRef stream() const { return stream_; }

  Tensor make(std::uint64_t count) { return Tensor(allocator(), stream_, count); }
  Tensor make_ones(std::uint64_t count) {
    Tensor ones = make(count);
    set(ones.address(), 1, count, get_handle(stream_));
    return ones;
  }
  // a + b + value, in new memory.
  Tensor plus(const Tensor& a, std::uint32_t value, const Tensor* b = nullptr) {
    Tensor result = make(a.count());
    add(result.address(), a.address(), b != nullptr ? b->address() : 0, value, a.count(),
        get_handle(stream_));
    return result;
  }
  Tensor clone(const Tensor& a) { return plus(a, 0); }
  // Twice (t + value), by temporaries, as upstream's tests compute.
  Tensor with_temporaries(const Tensor& t, std::uint32_t value) {
    const Tensor x = plus(clone(t), value);
    const Tensor y = plus(clone(t), value);
    return plus(x, 0, &y);
  }

  void retain(PoolId pool) { EXPECT_TRUE(allocator().retain_pool(0, pool).is_ok()); }
  void release(PoolId pool) { EXPECT_TRUE(allocator().release_pool(0, pool).is_ok()); }
  // `work` goes into the graph.
  template <class Work>
  std::unique_ptr<Graph> capture(PoolId pool, Work work, CaptureMode mode = CaptureMode::kGlobal) {
    synchronize(get_handle(stream_));
    const Route route{Route::Kind::kCapture, 0, pool, stream_.handle, {}};
    EXPECT_TRUE(allocator().begin_pool(route).is_ok());
    EXPECT_EQ(begin_capture(get_handle(stream_), static_cast<int>(mode)), 0);
    work();
    auto graph = std::make_unique<Graph>(get_handle(stream_));
    EXPECT_EQ(graph->code(), 0) << "the capture was lost";
    EXPECT_TRUE(allocator().end_pool(0, pool).is_ok());
    return graph;
  }
  void launch(Graph& graph) {
    if (graph.code() == 0) graph.launch(get_handle(stream_));
  }

 private:
  Device& device_;
  const StreamRef stream_ = make_stream();
};

}  // namespace quarry::gpu
