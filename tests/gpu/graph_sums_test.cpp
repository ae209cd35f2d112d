// SPDX-License-Identifier: Apache-2.0
// Upstream's tests of graphs, with the sums that their kernels compute, on the real device. The
// figures of memory are in tests/conformance/upstream/graph_pool_test.cpp, too.
#include "tests/gpu/graph_world.hpp"

namespace quarry::gpu {
namespace {

constexpr PoolId kP1{0, 1};
constexpr PoolId kP2{0, 2};
constexpr std::uint64_t kSize = 1000;

class GraphSums : public testing::Test {
 protected:
  GraphSums() : device_(false), world_(device_) {
    world_.retain(kP1);
    world_.retain(kP2);
    // Loads the kernels, which is not for a capture to live through.
    static_cast<void>(world_.with_temporaries(world_.make_ones(kSize), 1).sum());
    EXPECT_TRUE(device_.allocator().empty_cache(0).is_ok());
  }
  ~GraphSums() override {
    world_.release(kP1);
    world_.release(kP2);
    device_.allocator().validate();
  }
  Tensor repeat(const Tensor& of, std::uint32_t value, int times) {
    Tensor result = world_.clone(of);
    for (int i = 0; i < times; ++i)
      result = world_.with_temporaries(result, value);
    return result;
  }
  // The reserved bytes of all segments.
  Bytes run_two_successive(PoolId second) {
    const Tensor a = world_.make_ones(kSize);
    Tensor b = world_.make(kSize);
    const auto g0 = world_.capture(kP1, [&] { b = repeat(a, 1, 5); });
    const auto g1 = world_.capture(second, [&] {
      for (int i = 0; i < 5; ++i)
        b = world_.with_temporaries(b, 1);
    });
    // Unrelated work outside of graphs between the launches.
    Tensor c = repeat(a, 3, 2);
    world_.launch(*g0);
    for (int i = 0; i < 2; ++i)
      c = world_.with_temporaries(c, 3);
    world_.launch(*g1);
    for (int i = 0; i < 2; ++i)
      c = world_.with_temporaries(c, 3);
    EXPECT_EQ(b.sum(), 3070 * kSize);
    EXPECT_EQ(c.sum(), 442 * kSize);
    return device_.reserved();
  }

  Device device_;
  GraphWorld world_;
};

TEST_F(GraphSums, TwoSuccessiveGraphsApart) {
  EXPECT_EQ(run_two_successive(kP2), 3 * 2'097'152u);
}

TEST_F(GraphSums, TwoSuccessiveGraphsThatShareSaveASegment) {
  EXPECT_EQ(run_two_successive(kP1), 2 * 2'097'152u);
}

TEST_F(GraphSums, ConcurrentLaunchesOfGraphsWithPoolsOfTheirOwn) {
  constexpr std::uint64_t kLarge = 1'000'000;
  const Tensor a = world_.make_ones(kLarge);
  Tensor b = world_.make(kLarge), c = world_.make(kLarge);
  const auto g0 = world_.capture(kP1, [&] { b = repeat(a, 1, 5); });
  const auto g1 = world_.capture(kP2, [&] { c = repeat(a, 2, 5); });
  const Stream s0 = create_stream(false), s1 = create_stream(false);
  synchronize_device();
  for (int i = 0; i < 20; ++i) {
    g0->launch(s0);
    g1->launch(s1);
  }
  EXPECT_EQ(b.sum(), 94 * kLarge);
  EXPECT_EQ(c.sum(), 156 * kLarge);
  destroy_stream(s0);
  destroy_stream(s1);
}

class ThreeSuccessive : public GraphSums, public testing::WithParamInterface<bool> {};

// In order it is right either way. Out of order, graphs that share memory overwrite each other:
// that the second sum is 10 shows that the third graph has the memory that the first left.
TEST_P(ThreeSuccessive, AreRightInOrderAndOutOfOrderOnlyApart) {
  const bool are_sharing = GetParam();
  const PoolId p2 = are_sharing ? kP1 : kP2, p3 = are_sharing ? kP1 : PoolId{0, 3};
  if (!are_sharing) world_.retain(p3);
  {
    const Tensor a = world_.make_ones(kSize);
    Tensor b = world_.make(kSize), c = world_.make(kSize), d = world_.make(kSize);
    Tensor e = world_.make(kSize), f = world_.make(kSize);
    const auto g0 = world_.capture(kP1, [&] {
      b = world_.clone(a);
      c = world_.plus(b, 1);
      d = world_.plus(b, 2);
    });
    const auto g1 = world_.capture(p2, [&] {
      e = world_.plus(c, 3);
      c.reset();
    });
    const auto g2 = world_.capture(p3, [&] { f = world_.plus(d, 4); });
    for (Graph* graph : {g0.get(), g1.get(), g2.get()})
      world_.launch(*graph);
    EXPECT_EQ(e.sum(), 5 * kSize);
    EXPECT_EQ(f.sum(), 7 * kSize);
    for (Graph* graph : {g0.get(), g2.get(), g1.get()})
      world_.launch(*graph);
    EXPECT_EQ(e.sum(), (are_sharing ? 10 : 5) * kSize);
    EXPECT_EQ(f.sum(), 7 * kSize);
  }
  if (!are_sharing) world_.release(p3);
}

INSTANTIATE_TEST_SUITE_P(Pools, ThreeSuccessive, testing::Bool(), [](const auto& tested) {
  return std::string(tested.param ? "Shared" : "Apart");
});

class ResultOfADestroyedGraph : public GraphSums,
                                public testing::WithParamInterface<std::uint64_t> {};

TEST_P(ResultOfADestroyedGraph, StaysValid) {
  const std::uint64_t count = GetParam() / 4;
  const Tensor a = world_.make_ones(count);
  Tensor b = world_.make(count);
  {
    const auto graph = world_.capture(kP1, [&] {
      b = world_.clone(a);
      for (int i = 0; i < 5; ++i)
        b = world_.plus(world_.clone(b), 1);
    });
    world_.launch(*graph);
    synchronize_device();
  }
  world_.release(kP1);
  EXPECT_TRUE(device_.allocator().empty_cache(0).is_ok());
  // Others write all memory that came back.
  const Tensor other = world_.make_ones(GetParam() * 4);
  EXPECT_EQ(b.sum(), 6 * count);
  b.reset();
  world_.retain(kP1);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ResultOfADestroyedGraph,
                         testing::Values(512, 1'048'576, 1'049'088, 10'485'248, 10'486'272));

}  // namespace
}  // namespace quarry::gpu
