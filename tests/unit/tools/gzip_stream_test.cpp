// SPDX-License-Identifier: Apache-2.0
// gzip behind byte sources: several members, every cut, damage, and data that is not gzip.
#include "tools/gzip_stream.hpp"

#include <gtest/gtest.h>

#include "tests/unit/trace/trace_text.hpp"

namespace quarry::tools {
namespace {

struct Unpacked {
  std::string text;
  std::string error;
};

Unpacked unpack(const std::string& bytes, std::size_t step = 1 << 20) {
  const ByteSource source = make_gunzip_source(test::make_source(bytes, step));
  Unpacked unpacked;
  std::vector<char> out(1000);
  for (;;) {
    Result<std::size_t> count = source(out);
    if (!count.is_ok()) {
      unpacked.error = count.status().message();
      return unpacked;
    }
    if (count.value() == 0) return unpacked;
    unpacked.text.append(out.data(), count.value());
  }
}

std::string pack(const std::string& text) {
  std::string packed;
  const ByteSink sink = make_gzip_sink(test::make_sink(packed));
  EXPECT_TRUE(sink(text).is_ok());
  EXPECT_TRUE(sink({}).is_ok());
  return packed;
}

std::string make_text() {
  std::string text;
  for (int i = 0; i < 50000; ++i)
    text += std::to_string(i * 7919 % 100003) + "\n";
  return text;
}

TEST(GzipStream, UnpacksWhatItPacks) {
  const std::string text = make_text();
  const std::string packed = pack(text);
  EXPECT_LT(packed.size(), text.size() / 2);
  EXPECT_EQ(unpack(packed).text, text);
  EXPECT_EQ(unpack(packed, 1).text, text);
  EXPECT_EQ(unpack(pack("")).error, "");
}

TEST(GzipStream, ReadsSeveralMembersAsOneText) {
  const std::string packed = pack("one ") + pack("two ") + pack("three");
  EXPECT_EQ(unpack(packed).text, "one two three");
  EXPECT_EQ(unpack(packed, 1).text, "one two three");
}

TEST(GzipStream, PassesOtherDataThrough) {
  for (const char* text : {"", "x", "\x1f", "\x1fz", "t_us,op,id,bytes,stream\n"}) {
    EXPECT_EQ(unpack(text).text, text);
    EXPECT_EQ(unpack(text, 1).text, text);
    EXPECT_EQ(unpack(text).error, "");
  }
}

TEST(GzipStream, RefusesEveryCut) {
  const std::string packed = pack("a short text");
  for (std::size_t length = 2; length < packed.size(); ++length) {
    EXPECT_EQ(unpack(packed.substr(0, length)).error,
              "the gzip data is cut: it ends within a member")
        << length;
  }
}

TEST(GzipStream, HandsOutWhatCameBeforeTheCut) {
  const std::string text = make_text();
  const std::string packed = pack(text);
  const Unpacked unpacked = unpack(packed.substr(0, packed.size() / 2));
  EXPECT_EQ(unpacked.error, "the gzip data is cut: it ends within a member");
  EXPECT_GT(unpacked.text.size(), text.size() / 4);
  EXPECT_EQ(unpacked.text, text.substr(0, unpacked.text.size()));
}

TEST(GzipStream, RefusesDamageAndWhatFollows) {
  std::string damaged = pack(make_text());
  damaged[damaged.size() - 6] = static_cast<char>(damaged[damaged.size() - 6] ^ 1);
  EXPECT_EQ(unpack(damaged).error, "the gzip data is damaged: incorrect data check");
  EXPECT_EQ(unpack(pack("x") + "y").error, "something follows the gzip data");
  EXPECT_EQ(unpack(pack("x") + "yyy").error, "something follows the gzip data");
}

}  // namespace
}  // namespace quarry::tools
