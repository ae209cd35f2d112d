// SPDX-License-Identifier: Apache-2.0
// The calls of the capture matrix: every entry that Quarry's driver uses, and those that private
// pools, sharing between processes and the preload shim will need.
#include "bench/driver_facts/capture_scene.hpp"
#include "bench/driver_facts/gpu_work.hpp"

namespace quarry::facts {
namespace {

using Scene = CaptureScene;
using Make = std::function<CUresult(Scene&, CUstream)>;
using Prepare = std::function<void(Scene&)>;

constexpr std::uint64_t kBytes = 2 * kMiB;
constexpr auto kFile = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

void make_plain(Scene& scene) {
  require(cu().mem_alloc(&scene.plain, kBytes), "cuMemAlloc");
}
void make_ordered(Scene& scene) {
  require(cu().mem_alloc_async(&scene.ordered, kBytes, scene.other.get()), "cuMemAllocAsync");
}
void make_range(Scene& scene) {
  require(cu().mem_address_reserve(&scene.range, kBytes, 0, 0, 0), "cuMemAddressReserve");
}
void make_extent(Scene& scene) {
  const CUmemAllocationProp properties = make_extent_properties(kFile);
  require(cu().mem_create(&scene.extent, kBytes, &properties, 0), "cuMemCreate");
}
void make_mapped(Scene& scene) {
  make_range(scene);
  make_extent(scene);
  require(cu().mem_map(scene.range, kBytes, 0, scene.extent, 0), "cuMemMap");
  scene.is_mapped = true;
  const CUmemAccessDesc access = make_read_write_access();
  require(cu().mem_set_access(scene.range, kBytes, &access, 1), "cuMemSetAccess");
}

// Forgets what a call took away, if it did.
template <class Handle>
CUresult take(CUresult code, Handle& handle) {
  if (code == CUDA_SUCCESS) handle = {};
  return code;
}

class Calls {
 public:
  // A call that names no stream; one that Quarry relies on inside a bracket.
  void add(const char* name, Make make, Prepare prepare = {}) {
    calls_.push_back({name, false, std::move(make), std::move(prepare), false, false});
  }
  void add_relied_on(const char* name, Make make, Prepare prepare = {}) {
    calls_.push_back({name, false, std::move(make), std::move(prepare), false, true});
  }
  void add_on_stream(const char* name, Make make, Prepare prepare = {},
                     bool is_relied_on = false) {
    calls_.push_back({name, true, std::move(make), std::move(prepare), false, is_relied_on});
  }
  void add_on_capturing(const char* name, Make make, Prepare prepare = {}) {
    calls_.push_back({name, true, std::move(make), std::move(prepare), true, false});
  }
  std::vector<CaptureCall> take_all() { return std::move(calls_); }

 private:
  std::vector<CaptureCall> calls_;
};

void add_plain_memory(Calls& calls) {
  calls.add_relied_on("cuMemAlloc",
                      [](Scene& s, CUstream) { return cu().mem_alloc(&s.plain, kBytes); });
  calls.add_relied_on(
      "cuMemFree", [](Scene& s, CUstream) { return take(cu().mem_free(s.plain), s.plain); },
      make_plain);
  calls.add_relied_on("cuMemGetInfo", [](Scene&, CUstream) {
    std::size_t free = 0;
    std::size_t total = 0;
    return cu().mem_get_info(&free, &total);
  });
  calls.add(
      "cuPointerGetAttribute",
      [](Scene& s, CUstream) {
        unsigned type = 0;
        return cu().pointer_get_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, s.plain);
      },
      make_plain);
  calls.add(
      "cuMemGetAddressRange",
      [](Scene& s, CUstream) {
        CUdeviceptr base = 0;
        std::size_t bytes = 0;
        return cu().mem_get_address_range(&base, &bytes, s.plain);
      },
      make_plain);
  calls.add(
      "cuIpcGetMemHandle",
      [](Scene& s, CUstream) {
        CUipcMemHandle handle{};
        return cu().ipc_get_mem_handle(&handle, s.plain);
      },
      make_plain);
}

void add_extents(Calls& calls) {
  calls.add_relied_on("cuMemAddressReserve", [](Scene& s, CUstream) {
    return cu().mem_address_reserve(&s.range, kBytes, 0, 0, 0);
  });
  calls.add_relied_on(
      "cuMemAddressFree",
      [](Scene& s, CUstream) { return take(cu().mem_address_free(s.range, kBytes), s.range); },
      make_range);
  calls.add_relied_on("cuMemCreate", [](Scene& s, CUstream) {
    const CUmemAllocationProp properties = make_extent_properties();
    return cu().mem_create(&s.extent, kBytes, &properties, 0);
  });
  calls.add_relied_on(
      "cuMemRelease",
      [](Scene& s, CUstream) { return take(cu().mem_release(s.extent), s.extent); }, make_extent);
  calls.add_relied_on(
      "cuMemMap",
      [](Scene& s, CUstream) {
        const CUresult code = cu().mem_map(s.range, kBytes, 0, s.extent, 0);
        s.is_mapped = code == CUDA_SUCCESS;
        return code;
      },
      [](Scene& s) {
        make_range(s);
        make_extent(s);
      });
  calls.add_relied_on(
      "cuMemSetAccess",
      [](Scene& s, CUstream) {
        const CUmemAccessDesc access = make_read_write_access();
        return cu().mem_set_access(s.range, kBytes, &access, 1);
      },
      make_mapped);
  calls.add_relied_on(
      "cuMemUnmap",
      [](Scene& s, CUstream) { return take(cu().mem_unmap(s.range, kBytes), s.is_mapped); },
      make_mapped);
}

void add_sharing(Calls& calls) {
  calls.add(
      "cuMemExportToShareableHandle",
      [](Scene& s, CUstream) { return cu().mem_export(&s.file, s.extent, kFile, 0); },
      make_extent);
  calls.add(
      "cuMemImportFromShareableHandle",
      [](Scene& s, CUstream) {
        CUmemGenericAllocationHandle imported = 0;
        void* const file = reinterpret_cast<void*>(static_cast<std::intptr_t>(s.file));
        const CUresult code = cu().mem_import(&imported, file, kFile);
        if (code == CUDA_SUCCESS) static_cast<void>(cu().mem_release(imported));
        return code;
      },
      [](Scene& s) {
        make_extent(s);
        require(cu().mem_export(&s.file, s.extent, kFile, 0), "cuMemExportToShareableHandle");
      });
  calls.add(
      "cuMemRetainAllocationHandle",
      [](Scene& s, CUstream) {
        CUmemGenericAllocationHandle handle = 0;
        const CUresult code = cu().mem_retain_handle(&handle, reinterpret_cast<void*>(s.range));
        if (code == CUDA_SUCCESS) static_cast<void>(cu().mem_release(handle));
        return code;
      },
      make_mapped);
}

void add_events(Calls& calls) {
  calls.add_relied_on("cuEventCreate", [](Scene& s, CUstream) {
    return cu().event_create(&s.event, CU_EVENT_DISABLE_TIMING);
  });
  calls.add_relied_on(
      "cuEventDestroy",
      [](Scene& s, CUstream) { return take(cu().event_destroy(s.event), s.event); },
      [](Scene& s) {
        require(cu().event_create(&s.event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
      });
  calls.add_relied_on("cuEventQuery (recorded outside)",
                      [](Scene& s, CUstream) { return cu().event_query(s.passed_event.get()); });
  calls.add_relied_on("cuEventSynchronize (recorded outside)", [](Scene& s, CUstream) {
    return cu().event_synchronize(s.passed_event.get());
  });
  calls.add_on_stream(
      "cuEventRecord",
      [](Scene& s, CUstream on) { return cu().event_record(s.fresh_event.get(), on); }, {}, true);
  calls.add_on_stream(
      "cuStreamWaitEvent (recorded outside)",
      [](Scene& s, CUstream on) { return cu().stream_wait_event(on, s.passed_event.get(), 0); },
      {}, true);
  calls.add_on_capturing("cuEventRecord, then cuEventQuery of it", [](Scene& s, CUstream on) {
    const CUresult code = cu().event_record(s.fresh_event.get(), on);
    return code != CUDA_SUCCESS ? code : cu().event_query(s.fresh_event.get());
  });
  calls.add("cuCtxRecordEvent", [](Scene& s, CUstream) {
    return cu().ctx_record_event(s.context, s.fresh_event.get());
  });
}

void add_streams(Calls& calls) {
  calls.add_on_stream("cuStreamIsCapturing", [](Scene&, CUstream on) {
    CUstreamCaptureStatus status{};
    return cu().stream_is_capturing(on, &status);
  });
  calls.add_on_stream("cuStreamGetId", [](Scene&, CUstream on) {
    unsigned long long id = 0;
    return cu().stream_get_id(on, &id);
  });
  calls.add_on_stream("cuStreamGetCaptureInfo", [](Scene&, CUstream on) {
    CUstreamCaptureStatus status{};
    cuuint64_t id = 0;
    return cu().stream_get_capture_info(on, &status, &id, nullptr, nullptr, nullptr, nullptr);
  });
  calls.add_on_stream("cuStreamQuery", [](Scene&, CUstream on) { return cu().stream_query(on); });
  calls.add_on_stream("cuStreamSynchronize",
                      [](Scene&, CUstream on) { return cu().stream_synchronize(on); });
  calls.add("cuStreamCreate",
            [](Scene& s, CUstream) { return cu().stream_create(&s.stream, CU_STREAM_DEFAULT); });
  calls.add(
      "cuStreamDestroy (of an idle stream)",
      [](Scene& s, CUstream) { return take(cu().stream_destroy(s.stream), s.stream); },
      [](Scene& s) {
        require(cu().stream_create(&s.stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
      });
  calls.add_on_capturing(
      "cuGraphNodeGetDependencies (of what the stream depends on)", [](Scene&, CUstream on) {
        CUstreamCaptureStatus status{};
        const CUgraphNode* nodes = nullptr;
        const CUgraphEdgeData* edges = nullptr;
        std::size_t count = 0;
        const CUresult code =
            cu().stream_get_capture_info(on, &status, nullptr, nullptr, &nodes, &edges, &count);
        if (code != CUDA_SUCCESS) return code;
        if (count != 1) return CUDA_ERROR_UNKNOWN;  // the capture holds one kernel
        CUgraphNode earlier[4] = {};
        CUgraphEdgeData data[4] = {};
        count = 4;
        return cu().graph_node_get_dependencies(nodes[0], earlier, data, &count);
      });
  calls.add_on_capturing(
      "cuStreamUpdateCaptureDependencies (set to what they are)", [](Scene&, CUstream on) {
        CUstreamCaptureStatus status{};
        const CUgraphNode* nodes = nullptr;
        const CUgraphEdgeData* edges = nullptr;
        std::size_t count = 0;
        const CUresult code =
            cu().stream_get_capture_info(on, &status, nullptr, nullptr, &nodes, &edges, &count);
        if (code != CUDA_SUCCESS) return code;
        std::vector<CUgraphNode> same(nodes, nodes + count);
        return cu().stream_update_dependencies(on, same.data(), edges, count,
                                               CU_STREAM_SET_CAPTURE_DEPENDENCIES);
      });
}

void CUDA_CB do_nothing(void*) {}

void add_work(Calls& calls) {
  calls.add_on_stream("kernel launch", [](Scene&, CUstream on) {
    return static_cast<CUresult>(submit_nothing(on));
  });
  calls.add_on_stream("cuLaunchHostFunc", [](Scene&, CUstream on) {
    return cu().launch_host_func(on, do_nothing, nullptr);
  });
  calls.add_on_stream(
      "cuMemsetD8Async",
      [](Scene& s, CUstream on) { return cu().memset_d8_async(s.plain, 0, kBytes, on); },
      make_plain);
  calls.add_on_stream(
      "cuMemcpyDtoDAsync",
      [](Scene& s, CUstream on) {
        return cu().memcpy_dtod_async(s.plain, s.plain + kBytes / 2, kBytes / 2, on);
      },
      make_plain);
  calls.add_on_stream("cuMemAllocAsync", [](Scene& s, CUstream on) {
    CUdeviceptr address = 0;
    const CUresult code = cu().mem_alloc_async(&address, kBytes, on);
    // On the capturing stream it belongs to the graph, which never runs.
    if (code == CUDA_SUCCESS && on != s.capturing.get()) s.ordered = address;
    return code;
  });
  calls.add_on_stream(
      "cuMemFreeAsync",
      [](Scene& s, CUstream on) {
        const CUresult code = cu().mem_free_async(s.ordered, on);
        if (code == CUDA_SUCCESS && on != s.capturing.get()) s.ordered = 0;
        return code;
      },
      make_ordered);
}

void add_objects_and_contexts(Calls& calls) {
  calls.add("cuUserObjectCreate", [](Scene& s, CUstream) {
    return cu().user_object_create(&s.object, &s, do_nothing, 1,
                                   CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
  });
  const Prepare make_object = [](Scene& s) {
    require(
        cu().user_object_create(&s.object, &s, do_nothing, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
        "cuUserObjectCreate");
    require(cu().graph_create(&s.graph, 0), "cuGraphCreate");
  };
  calls.add(
      "cuGraphRetainUserObject (another graph)",
      [](Scene& s, CUstream) { return cu().graph_retain_user_object(s.graph, s.object, 1, 0); },
      make_object);
  calls.add_on_capturing(
      "cuGraphRetainUserObject (the graph that is being captured)",
      [](Scene& s, CUstream on) {
        CUstreamCaptureStatus status{};
        CUgraph graph = nullptr;
        const CUresult code =
            cu().stream_get_capture_info(on, &status, nullptr, &graph, nullptr, nullptr, nullptr);
        return code != CUDA_SUCCESS ? code : cu().graph_retain_user_object(graph, s.object, 1, 0);
      },
      make_object);
  calls.add("cuCtxSynchronize", [](Scene&, CUstream) { return cu().ctx_synchronize(); });
  calls.add_relied_on("cuCtxGetCurrent + cuCtxPushCurrent + cuCtxPopCurrent",
                      [](Scene& s, CUstream) {
                        CUcontext current = nullptr;
                        static_cast<void>(cu().ctx_get_current(&current));
                        const CUresult code = cu().ctx_push_current(s.context);
                        return code != CUDA_SUCCESS ? code : cu().ctx_pop_current(&current);
                      });
  calls.add("cuDevicePrimaryCtxRetain + cuDevicePrimaryCtxRelease", [](Scene&, CUstream) {
    CUcontext context = nullptr;
    const CUresult code = cu().primary_ctx_retain(&context, 0);
    return code != CUDA_SUCCESS ? code : cu().primary_ctx_release(0);
  });
  calls.add_relied_on("cuDeviceGetAttribute, cuDeviceTotalMem", [](Scene&, CUstream) {
    int value = 0;
    std::size_t bytes = 0;
    static_cast<void>(
        cu().device_get_attribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    return cu().device_total_mem(&bytes, 0);
  });
}

}  // namespace

std::vector<CaptureCall> make_capture_calls() {
  Calls calls;
  add_plain_memory(calls);
  add_extents(calls);
  add_sharing(calls);
  add_events(calls);
  add_streams(calls);
  add_work(calls);
  add_objects_and_contexts(calls);
  return calls.take_all();
}

}  // namespace quarry::facts
