// SPDX-License-Identifier: Apache-2.0
// Graphs under construction, of the real driver: telling their end, and the order of their nodes.
// The graph belongs to the capture; here it is only borrowed, for the length of a call.
#include <memory>
#include <new>
#include <vector>

#include "cuda_driver_class.hpp"

namespace quarry::cuda {
namespace {

// What a user object stands for. The driver runs its end on a thread of its own.
struct GraphEnd {
  GraphGoneCallback callback;  // null: nobody is to be told
  void* user;
};

void CUDA_CB end_graph(void* object) {
  const std::unique_ptr<GraphEnd> end(static_cast<GraphEnd*>(object));
  if (end->callback != nullptr) end->callback(end->user);
}

// A capture's status, for a call that needs an active one.
CUresult check_status(CUstreamCaptureStatus status) {
  if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  return status == CU_STREAM_CAPTURE_STATUS_NONE ? CUDA_ERROR_INVALID_VALUE
                                                 : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

// True if the later node waits for the whole of the earlier one. A kernel that was launched
// programmatically may begin, and even end, before the one that it depends on has ended.
bool waits_for_the_end(const CUgraphEdgeData& edge) {
  return edge.from_port == 0 && edge.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT;
}

// `edges` may be null: from a driver without edge data. Appends all or, without memory, nothing.
DriverCode append(const CUgraphNode* found, const CUgraphEdgeData* edges, std::size_t count,
                  std::vector<GraphNode>& nodes) noexcept {
  const std::size_t before = nodes.size();
  try {
    for (std::size_t i = 0; i < count; ++i) {
      if (edges != nullptr && !waits_for_the_end(edges[i])) continue;
      nodes.push_back(GraphNode{reinterpret_cast<std::uintptr_t>(found[i])});
    }
  } catch (const std::bad_alloc&) {
    nodes.resize(before);
    return DriverCode::kOutOfMemory;
  }
  return DriverCode::kSuccess;
}

}  // namespace

CUresult CudaDriver::find_capture_graph(CUstream stream, CUgraph& graph) noexcept {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult code =
      entries_.stream_get_capture_info(stream, &status, nullptr, &graph, nullptr, nullptr);
  if (code != CUDA_SUCCESS) return code;
  return check_status(status);
}

DriverCode CudaDriver::call_when_graph_is_gone(StreamRef stream, GraphGoneCallback callback,
                                               void* user) noexcept {
  if (entries_.stream_get_capture_info == nullptr || entries_.user_object_create == nullptr ||
      entries_.user_object_release == nullptr || entries_.graph_retain_user_object == nullptr) {
    return DriverCode::kNotSupported;
  }
  const Current current(*this, stream.device);
  if (!current.is_ok()) return current.code();
  CUgraph graph = nullptr;
  CUresult code = find_capture_graph(to_stream(stream.handle), graph);
  if (code != CUDA_SUCCESS) return to_code(code);
  std::unique_ptr<GraphEnd> end(new (std::nothrow) GraphEnd{callback, user});
  if (end == nullptr) return DriverCode::kOutOfMemory;
  CUuserObject object = nullptr;
  code = entries_.user_object_create(&object, end.get(), end_graph, 1,
                                     CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
  if (code != CUDA_SUCCESS) return to_code(code);
  GraphEnd* const owned_by_object = end.release();
  code = entries_.graph_retain_user_object(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
  if (code == CUDA_SUCCESS) return DriverCode::kSuccess;
  owned_by_object->callback = nullptr;
  static_cast<void>(entries_.user_object_release(object, 1));
  return to_code(code);
}

DriverCode CudaDriver::get_capture_frontier(StreamRef stream,
                                            std::vector<GraphNode>& nodes) noexcept {
  if (entries_.stream_get_capture_info == nullptr) return DriverCode::kNotSupported;
  const Current current(*this, stream.device);
  if (!current.is_ok()) return current.code();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUgraphNode* found = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  const CUstream handle = to_stream(stream.handle);
  CUresult code =
      entries_.stream_get_capture_info_v3 != nullptr
          ? entries_.stream_get_capture_info_v3(handle, &status, nullptr, nullptr, &found, &edges,
                                                &count)
          : entries_.stream_get_capture_info(handle, &status, nullptr, nullptr, &found, &count);
  if (code == CUDA_SUCCESS) code = check_status(status);
  if (code != CUDA_SUCCESS) return to_code(code);
  return append(found, edges, count, nodes);
}

DriverCode CudaDriver::get_predecessors(GraphNode node, std::vector<GraphNode>& nodes) noexcept {
  if (entries_.graph_node_get_dependencies == nullptr) return DriverCode::kNotSupported;
  auto* const handle = reinterpret_cast<CUgraphNode>(static_cast<std::uintptr_t>(node));
  const bool has_edges = entries_.graph_node_get_dependencies_v2 != nullptr;
  std::vector<CUgraphNode> found;
  std::vector<CUgraphEdgeData> edges;
  std::size_t count = 0;
  // The driver fills what there is room for. Its answer without room would be an error if there is
  // edge data, and not a number.
  for (std::size_t room = 16; count == found.size(); room *= 2) {
    try {
      found.resize(room);
      edges.resize(room);
    } catch (const std::bad_alloc&) {
      return DriverCode::kOutOfMemory;
    }
    count = room;
    const CUresult code =
        has_edges
            ? entries_.graph_node_get_dependencies_v2(handle, found.data(), edges.data(), &count)
            : entries_.graph_node_get_dependencies(handle, found.data(), &count);
    if (code != CUDA_SUCCESS) return to_code(code);
  }
  return append(found.data(), has_edges ? edges.data() : nullptr, count, nodes);
}

}  // namespace quarry::cuda
