// SPDX-License-Identifier: Apache-2.0
// Graphs under construction, of the real driver: telling their end. The graph belongs to the
// capture; here it is only borrowed, for the length of a call on the stream that captures.
#include <memory>
#include <new>

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

}  // namespace

CUresult CudaDriver::find_capture_graph(CUstream stream, CUgraph& graph) noexcept {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult code =
      entries_.stream_get_capture_info(stream, &status, nullptr, &graph, nullptr, nullptr);
  if (code != CUDA_SUCCESS) return code;
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) return CUDA_ERROR_INVALID_VALUE;
  if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) {
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  return CUDA_SUCCESS;
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

}  // namespace quarry::cuda
