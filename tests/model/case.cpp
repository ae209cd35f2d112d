// SPDX-License-Identifier: Apache-2.0
#include "tests/model/case.hpp"

#include <tuple>
#include <type_traits>
#include <utility>

namespace quarry::model {
namespace {

std::string format_value(bool value) {
  return value ? "true" : "false";
}
std::string format_value(int value) {
  return std::to_string(value);
}
std::string format_value(std::uint64_t value) {
  return value == kUnlimited ? "kUnlimited" : std::to_string(value);
}
std::string format_value(Caller caller) {
  static constexpr const char* kNames[] = {"kMain", "kSecond", "kThird", "kDriverCallback"};
  return std::string("Caller::") + kNames[static_cast<int>(caller)];
}
std::string format_value(CaptureMode mode) {
  static constexpr const char* kNames[] = {"kGlobal", "kThreadLocal", "kRelaxed"};
  return std::string("CaptureMode::") + kNames[static_cast<int>(mode)];
}
std::string format_value(sim::StreamKind kind) {
  return kind == sim::StreamKind::kBlocking ? "sim::StreamKind::kBlocking"
                                            : "sim::StreamKind::kNonBlocking";
}
std::string format_value(PoolSource source) {
  static constexpr const char* kNames[] = {"kDriver", "kFunctions", "kMoodyFunctions"};
  return std::string("PoolSource::") + kNames[static_cast<int>(source)];
}
std::string format_value(Route::Kind kind) {
  static constexpr const char* kNames[] = {"kThread", "kStream", "kCapture", "kFilter"};
  return std::string("Route::Kind::") + kNames[static_cast<int>(kind)];
}
std::string format_value(Mutant mutant) {
  return std::string("Mutant::") + get_name(mutant);
}

// Fields that have their default value are left out.
template <class T>
void append_field(std::string& text, const Field<T>& field, const Field<T>& usual) {
  if (field.value == usual.value) return;
  if (text.back() != '{') text += ", ";
  text.append(".").append(field.name).append(" = ").append(format_value(field.value));
}

template <class Fields, std::size_t... kIndex>
void append_fields(std::string& text, const Fields& fields, const Fields& usual,
                   std::index_sequence<kIndex...>) {
  (append_field(text, std::get<kIndex>(fields), std::get<kIndex>(usual)), ...);
}

}  // namespace

const char* get_name(Mutant mutant) {
  static constexpr const char* kNames[] = {"kNone",
                                           "kLostFence",
                                           "kDroppedRecord",
                                           "kRecordElsewhere",
                                           "kDroppedRecordStream",
                                           "kDroppedPin",
                                           "kWrongStream",
                                           "kUnseenCapture",
                                           "kSameCapture",
                                           "kPendingCaptured",
                                           "kUnseenReplay",
                                           "kDroppedWait",
                                           "kFreshFence",
                                           "kMoveUnmapsOld",
                                           "kSuddenDeath"};
  return kNames[static_cast<int>(mutant)];
}

std::string format(const Operation& operation) {
  return std::visit(
      [](const auto& op) {
        using Type = std::decay_t<decltype(op)>;
        std::string text = std::string(Type::kName) + "{";
        const auto fields = op.fields();
        append_fields(text, fields, Type{}.fields(),
                      std::make_index_sequence<std::tuple_size_v<decltype(fields)>>());
        return text + "}";
      },
      operation);
}

std::string format(const Case& experiment) {
  const CaseOptions& options = experiment.options;
  const CaseOptions usual;
  std::string text = "Case{.options = {";
  append_field(text, Field{"device_count", options.device_count}, Field{"", usual.device_count});
  append_field(text, Field{"threads", options.threads}, Field{"", usual.threads});
  append_field(text, Field{"made_streams", options.made_streams}, Field{"", usual.made_streams});
  append_field(text, Field{"physical_bytes", options.physical_bytes},
               Field{"", usual.physical_bytes});
  append_field(text, Field{"reuse_addresses", options.reuse_addresses},
               Field{"", usual.reuse_addresses});
  append_field(text, Field{"reuse_stream_handles", options.reuse_stream_handles},
               Field{"", usual.reuse_stream_handles});
  append_field(text, Field{"thread_cache", options.thread_cache}, Field{"", usual.thread_cache});
  append_field(text, Field{"expandable", options.expandable}, Field{"", usual.expandable});
  append_field(text, Field{"calls_take_time", options.calls_take_time},
               Field{"", usual.calls_take_time});
  append_field(text, Field{"has_pools", options.has_pools}, Field{"", usual.has_pools});
  append_field(text, Field{"mutant", options.mutant}, Field{"", usual.mutant});
  text += "},\n     .operations = {\n";
  for (const Operation& operation : experiment.operations)
    text.append("         ").append(format(operation)).append(",\n");
  return text + "     }}";
}

}  // namespace quarry::model
