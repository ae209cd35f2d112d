// SPDX-License-Identifier: Apache-2.0
// Functions of the user, called so that nothing which they throw gets into the core: it is logged
// and dropped, since the request that they were called for is not to blame.
#pragma once

#include <exception>
#include <string>

#include "base/log.hpp"

namespace quarry {

// What `call` returns; if it throws, a zero.
template <class Call>
auto call_safely(Call&& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::exception& error) {
    log_error(std::string("event=callback_threw text=\"") + error.what() + "\"");
  } catch (...) {
    log_error("event=callback_threw text=\"an exception of unknown type\"");
  }
  return decltype(call())();
}

}  // namespace quarry
