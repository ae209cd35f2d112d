// SPDX-License-Identifier: Apache-2.0
// The native format: nothing is lost, and no cut or flipped bit passes unseen.
#include <gtest/gtest.h>

#include <random>

#include "trace/crc32.hpp"
#include "trace_text.hpp"

namespace quarry::test {
namespace {

std::vector<TraceEvent> make_events(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TraceEvent> events(count);
  for (TraceEvent& event : events) {
    // Numbers of all lengths.
    const auto draw = [&random] { return random() >> (random() % 64); };
    event.op = static_cast<TraceOp>(1 + random() % 5);
    event.time_us = draw();
    event.id = draw();
    event.bytes = draw();
    event.stream = draw() >> 1;
    if (event.op == TraceOp::kFree && random() % 2 == 0) event.stream = kNoTraceStream;
  }
  return events;
}

std::vector<TraceEvent> make_plain_events(std::size_t count) {
  std::vector<TraceEvent> events;
  for (std::size_t i = 0; i < count; ++i) {
    events.push_back({i * 3, i + 1, 512, 0, TraceOp::kAlloc});
    events.push_back({i * 3 + 1, i + 1, 0, 0, TraceOp::kFree});
  }
  return events;
}

TEST(NativeFormat, KeepsEveryNumber) {
  const std::vector<TraceEvent> events = make_events(50000, 1);
  const std::string bytes = write_all(TraceFormat::kNative, events);
  EXPECT_EQ(read_text(bytes).events, events);
  EXPECT_EQ(read_all(make_source(bytes, 11), 17).events, events);
}

TEST(NativeFormat, KeepsAnEmptyTrace) {
  const WholeTrace trace = read_text(write_all(TraceFormat::kNative, {}));
  EXPECT_EQ(trace.error, "");
  EXPECT_TRUE(trace.events.empty());
}

TEST(NativeFormat, TakesTwoBytesForAPredictedEvent) {
  const std::string bytes = write_all(TraceFormat::kNative, make_plain_events(10000));
  EXPECT_LT(bytes.size(), 20000u * 2 + 200);
}

// The example of docs/trace-format.md, byte by byte.
TEST(NativeFormat, IsWhatItsDocumentationShows) {
  const std::string bytes = write_all(TraceFormat::kNative, {{0, 1, 1000, 0, TraceOp::kAlloc},
                                                             {7, 1, 0, 2, TraceOp::kRecordStream},
                                                             {9, 1, 0, 0, TraceOp::kFree}});
  const unsigned char expected[] = {
      0x89, 'Q',  'T',  'R', 0x0d, 0x0a, 0x1a, 0x0a, 1,    0,    0,    0,    0, 0, 0, 0,  // header
      0x09, 0,    0,    0,   3,    0,    0,    0,    0xde, 0xe2, 0x63, 0x92,              // block
      0x41, 0xe8, 0x07,                                                                   // a
      0x93, 0x0e, 0x03,                                                                   // r
      0x92, 0x04, 0x01,                                                                   // f
      0x08, 0,    0,    0,   0,    0,    0,    0,    0xf9, 0xd3, 0x27, 0x11,  // trailer
      3,    0,    0,    0,   0,    0,    0,    0};
  EXPECT_EQ(bytes, std::string(reinterpret_cast<const char*>(expected), sizeof(expected)));
}

TEST(NativeFormat, RefusesEveryCut) {
  const std::string bytes = write_all(TraceFormat::kNative, make_plain_events(20));
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_NE(read_text(bytes.substr(0, length)).error, "") << "cut to " << length << " bytes";
  }
}

TEST(NativeFormat, RefusesEveryFlippedBit) {
  const std::string bytes = write_all(TraceFormat::kNative, make_plain_events(20));
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_NE(read_text(damaged).error, "") << "bit " << bit;
  }
}

TEST(NativeFormat, RefusesAMissingBlock) {
  const std::string bytes = write_all(TraceFormat::kNative, make_plain_events(20));
  const std::size_t trailer = bytes.size() - kNativeBlockHeaderBytes - kNativeTrailerPayloadBytes;
  EXPECT_EQ(read_text(bytes.substr(0, kNativeHeaderBytes) + bytes.substr(trailer)).error,
            "t: event 1: damaged: the trailer counts 40 events, not 0");
}

TEST(NativeFormat, SaysWhatIsWrong) {
  const std::string bytes = write_all(TraceFormat::kNative, make_plain_events(20));
  EXPECT_EQ(read_text(bytes.substr(0, bytes.size() - 1)).error,
            "t: event 41: the file is cut within a block");
  EXPECT_EQ(read_text(bytes.substr(0, 10)).error, "t: the file ends within its header");
  EXPECT_EQ(read_text(bytes + "x").error, "t: event 41: there is something after the trailer");
  std::string converted = bytes;
  converted.erase(4, 1);
  EXPECT_EQ(read_text(converted).error,
            "t: damaged: its first 8 bytes are not those of a native trace, as after a conversion "
            "of line ends");
  std::string newer = bytes;
  newer[8] = 2;
  EXPECT_EQ(read_text(newer).error, "t: format version 2; this program reads version 1");
}

// Blocks with right sums and wrong contents, as a faulty writer would make them.
TEST(NativeFormat, SurvivesAnyPayload) {
  std::mt19937_64 random(7);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string payload(1 + random() % 60, '\0');
    for (char& c : payload)
      c = static_cast<char>(random());
    std::string block(kNativeBlockHeaderBytes, '\0');
    store_u32(block.data(), static_cast<std::uint32_t>(payload.size()));
    store_u32(block.data() + 4, static_cast<std::uint32_t>(1 + random() % 20));
    const std::uint32_t sum = calculate_crc32(payload, calculate_crc32({block.data(), 8}));
    store_u32(block.data() + 8, sum);
    const std::string header = write_all(TraceFormat::kNative, {}).substr(0, kNativeHeaderBytes);
    refused += read_text(header + block + payload).error.empty() ? 0 : 1;
  }
  EXPECT_EQ(refused, 20000);
}

TEST(Crc32, IsTheOneOfGzip) {
  EXPECT_EQ(calculate_crc32(std::string_view("123456789")), 0xCBF43926u);
  EXPECT_EQ(calculate_crc32(std::string_view("6789"), calculate_crc32(std::string_view("12345"))),
            0xCBF43926u);
}

}  // namespace
}  // namespace quarry::test
