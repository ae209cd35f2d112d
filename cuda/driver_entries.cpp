// SPDX-License-Identifier: Apache-2.0
#include "driver_entries.hpp"

#include <string>

namespace quarry::cuda {

DriverEntries find_driver_entries(const DriverLibrary& library) {
  DriverEntries entries;
#define QUARRY_RESOLVE(member, name, version, symbol) \
  entries.member = reinterpret_cast<PFN_##name##_v##version>(library.find(#name, version, symbol));
  QUARRY_REQUIRED_ENTRIES(QUARRY_RESOLVE)
  QUARRY_OPTIONAL_ENTRIES(QUARRY_RESOLVE)
#undef QUARRY_RESOLVE
  // Only of a driver of their age: what an older one's resolver answers, its documentation leaves
  // open, and the older ABI under the newer one's type would be called with wrong arguments.
  int driver_version = 0;
  if (entries.driver_get_version != nullptr) {
    static_cast<void>(entries.driver_get_version(&driver_version));
  }
#define QUARRY_RESOLVE_NEWER(member, name, version, symbol)                              \
  if (driver_version >= (version)) {                                                     \
    entries.member =                                                                     \
        reinterpret_cast<PFN_##name##_v##version>(library.find(#name, version, symbol)); \
  }
  QUARRY_NEWER_ENTRIES(QUARRY_RESOLVE_NEWER)
#undef QUARRY_RESOLVE_NEWER
  return entries;
}

std::vector<EntryState> list_entries(const DriverEntries& entries) {
  std::vector<EntryState> states;
// The names are quoted here and not one macro further in, where cuda.h's own macros would have
// made another ABI's name of them.
#define QUARRY_ADD_REQUIRED(member, name, version, symbol) \
  states.push_back({#name, version, true, entries.member != nullptr});
#define QUARRY_ADD_OPTIONAL(member, name, version, symbol) \
  states.push_back({#name, version, false, entries.member != nullptr});
  QUARRY_REQUIRED_ENTRIES(QUARRY_ADD_REQUIRED)
  QUARRY_OPTIONAL_ENTRIES(QUARRY_ADD_OPTIONAL)
#undef QUARRY_ADD_OPTIONAL
#undef QUARRY_ADD_REQUIRED
  return states;
}

Status check_entries(const DriverEntries& entries) {
  for (const EntryState& entry : list_entries(entries)) {
    if (entry.is_found || !entry.is_required) continue;
    return Status(StatusCode::kNotSupported,
                  std::string("the CUDA driver is too old: it has no ") + entry.name +
                      " (CUDA 11.3 or later is needed)");
  }
  return Status::ok();
}

Result<DriverEntries> load_driver_entries() {
  const Result<DriverLibrary> library = DriverLibrary::open();
  if (!library.is_ok()) return Status(library.code(), std::string(library.status().message()));
  const DriverEntries entries = find_driver_entries(library.value());
  if (Status status = check_entries(entries); !status.is_ok()) return status;
  return entries;
}

}  // namespace quarry::cuda
