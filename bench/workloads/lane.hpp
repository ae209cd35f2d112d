// SPDX-License-Identifier: Apache-2.0
// What a workload sees of an allocator: malloc and free on one stream, from one thread. A *peer*
// is an allocator under test, a class with
//   void* malloc(std::size_t bytes, Stream stream);             throws if it cannot
//   void free(void* ptr, std::size_t bytes, Stream stream);
//   Stream stream(int number);                                  the same one for the same number
//   void enter_thread();                                        before a thread's first call
// Templates and no virtual calls, so that nothing but the peer's own cost is measured.
#pragma once

#include <cstddef>
#include <vector>

namespace quarry::bench {

using Stream = void*;  // a CUstream, which is a cudaStream_t

struct Block {
  void* ptr = nullptr;
  std::size_t bytes = 0;
};

template <class Peer>
class Lane {
 public:
  Lane(Peer& peer, int number) : peer_(&peer), stream_(peer.stream(number)) {}

  Block malloc(std::size_t bytes) { return {peer_->malloc(bytes, stream_), bytes}; }
  void free(Block block) { peer_->free(block.ptr, block.bytes, stream_); }

 private:
  Peer* peer_;
  Stream stream_;
};

// Frees a list of blocks at the end of its life, also when filling it was cut short by a refusal.
template <class Lane>
class Held {
 public:
  explicit Held(Lane lane) : lane_(lane) {}
  ~Held() {
    for (const Block& block : blocks) {
      if (block.ptr != nullptr) lane_.free(block);
    }
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  std::vector<Block> blocks;

 private:
  Lane lane_;
};

}  // namespace quarry::bench
