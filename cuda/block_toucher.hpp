// SPDX-License-Identifier: Apache-2.0
// What a program does with its GPU beside allocating, for replays on a real device: streams, and
// kernels that fill blocks with words of their own and check them. Abstract as Driver is, so that
// the tools need no CUDA header and tests can touch simulated memory. Not thread-safe; one device.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.hpp"
#include "driver/driver_types.hpp"

namespace quarry::cuda {

// The part of a block that its user asked for, rounded up to whole words of 4 bytes: blocks are
// multiples of 512 bytes. `number` names the contents, from 0.
struct TouchedBlock {
  Address address = 0;
  Bytes bytes = 0;
  std::uint64_t number = 0;
};

struct WrongWords {
  std::uint64_t count = 0;
  std::uint64_t first_number = 0;  // of the first block found wrong; meaningful if count > 0
};

class BlockToucher {
 public:
  BlockToucher() = default;
  BlockToucher(const BlockToucher&) = delete;
  BlockToucher& operator=(const BlockToucher&) = delete;
  virtual ~BlockToucher() = default;

  // A non-blocking stream, which lives until this object goes.
  virtual DriverResult<StreamRef> create_stream() noexcept = 0;
  // Every word of the block gets a value made of the block's number and the word's place, after
  // what is on the stream.
  virtual DriverCode fill(const TouchedBlock& block, StreamRef stream) noexcept = 0;
  // Counts, on the device, the words that are not what `fill` wrote.
  virtual DriverCode check(const TouchedBlock& block, StreamRef stream) noexcept = 0;
  // What is on `before` now comes before what is submitted to `after` from now on.
  virtual DriverCode order(StreamRef before, StreamRef after) noexcept = 0;
  // Waits until all work of the stream is done.
  virtual DriverCode synchronize(StreamRef stream) noexcept = 0;
  // What all checks so far counted. Waits for the device.
  virtual DriverResult<WrongWords> count_wrong_words() noexcept = 0;
};

// On a device of the real driver. kNotSupported without one, or where it does not take the
// kernels (PTX for compute capability 7.0 and later).
Result<std::unique_ptr<BlockToucher>> make_block_toucher(DeviceId device);

}  // namespace quarry::cuda
