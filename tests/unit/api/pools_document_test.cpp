// SPDX-License-Identifier: Apache-2.0
// The snippets of docs/pools.md, run: each stands below line by line, with the few names of CUDA
// and NCCL that they use over the simulated device.
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>

#include "quarry/quarry.hpp"
#include "tests/unit/api/api_fixture.hpp"

namespace quarry {
namespace {

using cudaStream_t = quarry_stream;
using cudaGraph_t = sim::GraphId;
constexpr int cudaStreamCaptureModeThreadLocal = 1;
constexpr int ncclSuccess = 0;
constexpr std::size_t kSampleBytes = 1_MiB;

SimDriver* device_of_snippets = nullptr;

StreamRef to_ref(cudaStream_t stream) {
  return {0, StreamHandle{reinterpret_cast<std::uint64_t>(stream)}};
}
void cudaStreamBeginCapture(cudaStream_t stream, int) {
  ASSERT_EQ(device_of_snippets->begin_capture(to_ref(stream), CaptureMode::kThreadLocal),
            DriverCode::kSuccess);
}
void cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const auto ended = device_of_snippets->end_capture(to_ref(stream));
  ASSERT_TRUE(ended.is_ok());
  *graph = ended.value;
}
int ncclMemAlloc(void** ptr, std::size_t bytes) {
  const auto made = device_of_snippets->allocate(0, bytes);
  *ptr = reinterpret_cast<void*>(made.value);
  return made.is_ok() ? ncclSuccess : 1;
}
void ncclMemFree(void* ptr) {
  EXPECT_EQ(device_of_snippets->free(0, reinterpret_cast<Address>(ptr)), DriverCode::kSuccess);
}

class PoolsDocument : public testing_support::ApiTest {
 protected:
  void SetUp() override {
    ApiTest::SetUp();
    device_of_snippets = &sim();
    const StreamRef made = sim().create_stream(0, sim::StreamKind::kNonBlocking);
    stream = testing_support::make_stream(static_cast<std::uint64_t>(made.handle));
  }
  void run_model(std::size_t, void* data, cudaStream_t on) {
    const auto address = reinterpret_cast<Address>(data);
    ASSERT_EQ(sim().submit_work(to_ref(on), {}, sim::MemoryRange{address, kSampleBytes}),
              DriverCode::kSuccess);
  }

  const int device = 0;
  const std::size_t bytes = 4_MiB;
  quarry_stream stream = nullptr;
};

TEST_F(PoolsDocument, OnePoolForManyBatchSizes) {
  std::map<std::size_t, cudaGraph_t> graphs;
  quarry::Pool pool(device);
  for (const std::size_t batch : {64, 16, 4, 1}) {  // the largest first: the others fit into it
    const auto scope = quarry::PoolScope::for_capture(pool, stream);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    quarry::UniqueBlock activations(batch * kSampleBytes, device, stream);
    run_model(batch, activations.data(), stream);
    activations.reset();  // for the next request of this capture, and for later captures
    cudaStreamEndCapture(stream, &graphs[batch]);
  }
  // What the largest needs, and one segment for requests up to 1 MiB.
  EXPECT_EQ(pool.get_stats().reserved_bytes, static_cast<std::int64_t>(66_MiB));
  for (const auto& [batch, graph] : graphs)
    EXPECT_EQ(sim().launch_graph(graph, to_ref(stream)), DriverCode::kSuccess);
  EXPECT_EQ(sim().hazard_count(), 0u);
}

TEST_F(PoolsDocument, BackToAnEarlierLayout) {
  const std::size_t batch = 4;
  std::map<char, cudaGraph_t> graphs;
  std::map<char, quarry::UniqueBlock> outputs;
  quarry::Pool pool(device);
  quarry::UniqueBlock hidden = pool.allocate(bytes, stream);  // what both branches begin with
  const quarry::Checkpoint after_warm_up(pool);
  for (const char branch : {'A', 'B'}) {
    after_warm_up.restore();  // before B: the output of A is stale
    const auto scope = quarry::PoolScope::for_capture(pool, stream);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    outputs[branch] = quarry::UniqueBlock(bytes, device, stream);
    run_model(batch, outputs[branch].data(), stream);
    cudaStreamEndCapture(stream, &graphs[branch]);
  }
  EXPECT_EQ(outputs['A'].data(), outputs['B'].data());
  EXPECT_EQ(pool.get_stats().allocated_blocks, 2);
  outputs['A'].reset();
  EXPECT_EQ(pool.get_stats().allocated_blocks, 2);
  for (const auto& [branch, graph] : graphs)
    EXPECT_EQ(sim().launch_graph(graph, to_ref(stream)), DriverCode::kSuccess);
  EXPECT_EQ(sim().hazard_count(), 0u);
}

TEST_F(PoolsDocument, APoolForCommunication) {
  quarry::Pool::Options options;
  options.no_recycle = true;
  options.limit_bytes = std::uint64_t{64} << 20;
  const quarry::Pool pool(device, std::move(options));
  quarry::UniqueBlock packet = pool.allocate(bytes, stream);
  packet.reset();
  ASSERT_EQ(quarry_empty_cache(device), QUARRY_OK);
  const std::size_t all_but_a_segment = kDeviceMemory - 20_MiB;
  void* other = allocate(all_but_a_segment);
  void* refused = nullptr;
  EXPECT_EQ(quarry_malloc(&refused, 20_MiB, device, stream), QUARRY_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(pool.get_stats().reserved_bytes, static_cast<std::int64_t>(20_MiB));
  quarry_free(other);
}

TEST_F(PoolsDocument, MemoryOfYourOwn) {
  bool is_unused = false;
  quarry::Pool::Options options;
  options.allocate = [](std::size_t wanted, int, quarry_stream) {
    void* ptr = nullptr;
    return ncclMemAlloc(&ptr, wanted) == ncclSuccess ? ptr : nullptr;
  };
  options.free = [](void* ptr, std::size_t, int, quarry_stream) { ncclMemFree(ptr); };
  options.on_unused = [&is_unused] { is_unused = true; };
  quarry::Pool pool(device, std::move(options));
  quarry::UniqueBlock block = pool.allocate(bytes, stream);
  pool.reset();   // released: no new blocks
  block.reset();  // the last one: the segment goes back, and nothing is called any more
  EXPECT_TRUE(is_unused);
  EXPECT_EQ(sim().get_holdings(0).plain_allocations, 0u);
}

TEST_F(PoolsDocument, FiguresOfEveryPool) {
  const quarry::Pool pool(device);
  const quarry::UniqueBlock block = pool.allocate(bytes, stream);
  testing::internal::CaptureStdout();
  const auto print = [](const quarry_pool_stats* stats, void*) {
    std::printf("pool %llu: %lld of %lld bytes in use\n",
                static_cast<unsigned long long>(stats->pool),
                static_cast<long long>(stats->allocated_bytes),
                static_cast<long long>(stats->reserved_bytes));
  };
  quarry::check(quarry_for_each_pool(device, print, nullptr));
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "pool " + std::to_string(pool.get()) + ": 4194304 of 20971520 bytes in use\n");
}

// --- That the document's snippets are the ones above ---

std::string read_lines(std::istream& from) {  // without indentation
  std::string text;
  for (std::string line; std::getline(from, line);)
    text += line.substr(std::min(line.find_first_not_of(' '), line.size())) + "\n";
  return text;
}
std::string read_file(const std::string& path) {
  std::ifstream file(std::string(QUARRY_SOURCE_DIR) + path);
  return read_lines(file);
}

TEST(PoolsDocumentText, EverySnippetIsRunByThisFile) {
  const std::string document = read_file("/docs/pools.md");
  const std::string program = read_file("/tests/unit/api/pools_document_test.cpp");
  const std::string fence = "```cpp\n";
  int count = 0;
  for (auto at = document.find(fence); at != std::string::npos; at = document.find(fence, at)) {
    at += fence.size();
    const std::string snippet = document.substr(at, document.find("```\n", at) - at);
    EXPECT_NE(program.find(snippet), std::string::npos) << snippet;
    ++count;
  }
  EXPECT_EQ(count, 5);
}

}  // namespace
}  // namespace quarry
