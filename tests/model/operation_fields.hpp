// SPDX-License-Identifier: Apache-2.0
// What all operations have: who makes the call, and fields that are printed by name.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>

namespace quarry::model {

class State;

// Who makes the call: the main thread, two others, or the main thread inside a driver callback.
enum class Caller { kMain, kSecond, kThird, kDriverCallback };

// One name and value of an operation, as it is printed.
template <class T>
struct Field {
  const char* name;
  T value;
};
template <class T>
Field(const char*, T) -> Field<T>;

}  // namespace quarry::model
