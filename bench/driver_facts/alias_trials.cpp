// SPDX-License-Identifier: Apache-2.0
// The trials with standing mappings: launches, events, the copy engine, bulk and tensor copies.
#include "bench/driver_facts/alias_coherence.hpp"

namespace quarry::facts {
namespace {

enum class Touch { kNothing, kOld, kNew };

// Differs from round to round, so that a word of an earlier round counts as wrong.
std::uint32_t make_value(unsigned round) {
  return 0x51ed27u + round * 0x9e3779b1u;
}

struct PairPlan {
  Way write = Way::kPlain;
  Way read = Way::kPlain;
  bool is_programmatic = false;
  Touch touch = Touch::kNothing;
};

std::uint64_t run_pairs(AliasLab& lab, unsigned rounds, const PairPlan& pair) {
  const LaunchPlan plan{lab.stream(), pair.is_programmatic};
  for (unsigned round = 0; round < rounds; ++round) {
    const View& from = lab.old_view(round);
    const View& to = lab.new_view(round);
    const CUdeviceptr touched = pair.touch == Touch::kOld   ? from.address
                                : pair.touch == Touch::kNew ? to.address
                                                            : 0;
    require(launch_write(pair.write, from, make_value(round), plan), "write");
    require(launch_read(pair.read, to, make_value(round), touched, lab.counts(), plan), "read");
  }
  return rounds * lab.words();
}

std::uint64_t run_two_streams(AliasLab& lab, unsigned rounds) {
  for (unsigned round = 0; round < rounds; ++round) {
    require(
        launch_write(Way::kPlain, lab.old_view(round), make_value(round), {lab.stream(0), false}),
        "write");
    order_streams(lab.stream(0), lab.stream(1));
    require(launch_read(Way::kPlain, lab.new_view(round), make_value(round), 0, lab.counts(),
                        {lab.stream(1), false}),
            "read");
    order_streams(lab.stream(1), lab.stream(0));
  }
  return rounds * lab.words();
}

std::uint64_t run_copy_out(AliasLab& lab, unsigned rounds) {
  const LaunchPlan plan{lab.stream(), false};
  for (unsigned round = 0; round < rounds; ++round) {
    require(launch_write(Way::kPlain, lab.old_view(round), make_value(round), plan), "write");
    require(cu().memcpy_dtod_async(lab.plain_view().address, lab.new_view(round).address,
                                   lab.bytes(), lab.stream()),
            "copy");
    require(launch_read(Way::kPlain, lab.plain_view(), make_value(round), 0, lab.counts(), plan),
            "read");
  }
  return rounds * lab.words();
}

std::uint64_t run_copy_in(AliasLab& lab, unsigned rounds) {
  const LaunchPlan plan{lab.stream(), false};
  for (unsigned round = 0; round < rounds; ++round) {
    require(launch_write(Way::kPlain, lab.plain_view(), make_value(round), plan), "write");
    require(cu().memcpy_dtod_async(lab.old_view(round).address, lab.plain_view().address,
                                   lab.bytes(), lab.stream()),
            "copy");
    require(
        launch_read(Way::kPlain, lab.new_view(round), make_value(round), 0, lab.counts(), plan),
        "read");
  }
  return rounds * lab.words();
}

// Written by the copy engine through one address, read by it through the other.
std::uint64_t run_copy_in_and_out(AliasLab& lab, unsigned rounds) {
  const LaunchPlan plan{lab.stream(), false};
  const std::uint64_t half =
      lab.bytes() / 2 / (kSquareWords * kRowWords * 4) * (kSquareWords * kRowWords * 4);
  const View upper = make_view(lab.plain_view().address + half, lab.bytes() - half);
  View lower = make_view(lab.plain_view().address, half);
  for (unsigned round = 0; round < rounds; ++round) {
    require(launch_write(Way::kPlain, lower, make_value(round), plan), "write");
    require(cu().memcpy_dtod_async(lab.old_view(round).address, lower.address, half, lab.stream()),
            "copy in");
    require(cu().memcpy_dtod_async(upper.address, lab.new_view(round).address, half, lab.stream()),
            "copy out");
    View copied = upper;
    copied.bytes = half;
    require(launch_read(Way::kPlain, copied, make_value(round), 0, lab.counts(), plan), "read");
  }
  return rounds * (half / 4);
}

// By way of the host, in both directions.
std::uint64_t run_host_copies(AliasLab& lab, unsigned rounds) {
  const LaunchPlan plan{lab.stream(), false};
  for (unsigned round = 0; round < rounds; ++round) {
    require(launch_write(Way::kPlain, lab.old_view(round), make_value(round), plan), "write");
    require(
        cu().memcpy_dtoh_async(lab.host(), lab.new_view(round).address, lab.bytes(), lab.stream()),
        "copy to the host");
    require(cu().memset_d8_async(lab.old_view(round).address, 0, lab.bytes(), lab.stream()),
            "memset");
    require(
        cu().memcpy_htod_async(lab.new_view(round).address, lab.host(), lab.bytes(), lab.stream()),
        "copy to the device");
    require(
        launch_read(Way::kPlain, lab.old_view(round), make_value(round), 0, lab.counts(), plan),
        "read");
  }
  return rounds * lab.words();
}

std::uint64_t run_memset(AliasLab& lab, unsigned rounds) {
  for (unsigned round = 0; round < rounds; ++round) {
    require(cu().memset_d32_async(lab.old_view(round).address, make_value(round), lab.words(),
                                  lab.stream()),
            "memset");
    require(launch_read_constant(lab.new_view(round), make_value(round), lab.counts(),
                                 {lab.stream(), false}),
            "read");
  }
  return rounds * lab.words();
}

AliasTrial make_pairs(std::string name, std::string what, PairPlan pair, bool is_demanded = true) {
  return {std::move(name), std::move(what), is_demanded,
          [pair](AliasLab& lab, unsigned rounds) { return run_pairs(lab, rounds, pair); }};
}

void add_launch_trials(std::vector<AliasTrial>& trials) {
  trials.push_back(
      make_pairs("PlainLaunches", "kernel writes, next kernel of the stream reads", {}));
  trials.push_back(make_pairs("ReadOnlyPath", "as before, read by the read-only path",
                              {Way::kPlain, Way::kReadOnly}));
  trials.push_back(make_pairs("DependentLaunch",
                              "programmatic dependent launches; each kernel triggers at its "
                              "start and waits before its first access",
                              {Way::kPlain, Way::kPlain, true}));
  trials.push_back(make_pairs("DependentLaunchReadOnlyPath",
                              "as before, by the read-only path, which CUDA promises only for "
                              "what nobody writes while the kernel lives; told, not demanded",
                              {Way::kPlain, Way::kReadOnly, true}, false));
  trials.push_back(make_pairs("DependentLaunchAfterTouchingTheOldAddress",
                              "as DependentLaunch; before it waits, the reader loads the words "
                              "through the address that is being written",
                              {Way::kPlain, Way::kPlain, true, Touch::kOld}));
  trials.push_back(make_pairs("DependentLaunchAfterTouchingTheNewAddress",
                              "the same through the address that it will read; a race by CUDA's "
                              "rules with one address too, so told and not demanded",
                              {Way::kPlain, Way::kPlain, true, Touch::kNew}, false));
  trials.push_back({"TwoStreamsAndAnEvent",
                    "written on one stream, read on another that waits for an event", true,
                    run_two_streams});
}

void add_copy_trials(std::vector<AliasTrial>& trials) {
  trials.push_back(
      {"KernelWritesCopyReads", "device copy out of the other address", true, run_copy_out});
  trials.push_back({"CopyWritesKernelReads", "device copy into one address", true, run_copy_in});
  trials.push_back({"CopyWritesCopyReads", "device copy in, device copy out of the other", true,
                    run_copy_in_and_out});
  trials.push_back({"HostCopies",
                    "written by a kernel, copied to the host through the other address, "
                    "overwritten, copied back from the host, read through the first",
                    true, run_host_copies});
  trials.push_back(
      {"MemsetWritesKernelReads", "memset of words through one address", true, run_memset});
}

void add_async_trials(std::vector<AliasTrial>& trials) {
  struct Kind {
    Way way;
    const char* name;
    const char* what;
  };
  for (const Kind& kind : {Kind{Way::kBulk, "Bulk", "bulk asynchronous copy"},
                           Kind{Way::kTensor1d, "Tensor1d", "tensor copy of rank 1"},
                           Kind{Way::kTensor2d, "Tensor2d", "tensor copy of rank 2"}}) {
    const std::string name = kind.name;
    const std::string what = kind.what;
    trials.push_back(make_pairs(name + "Writes", "written by " + what + ", read plainly",
                                {kind.way, Way::kPlain}));
    trials.push_back(
        make_pairs(name + "Reads", "written plainly, read by " + what, {Way::kPlain, kind.way}));
    trials.push_back(
        make_pairs(name + "WritesAndReads", "written and read by " + what, {kind.way, kind.way}));
    trials.push_back(make_pairs(name + "DependentLaunch",
                                "the same with programmatic dependent launches",
                                {kind.way, kind.way, true}));
    trials.push_back(make_pairs(name + "ReadsDependentLaunch",
                                "written plainly, read by " + what + " in a dependent launch",
                                {Way::kPlain, kind.way, true}));
  }
}

}  // namespace

const std::vector<AliasTrial>& get_alias_trials() {
  static const std::vector<AliasTrial> trials = [] {
    std::vector<AliasTrial> all;
    add_launch_trials(all);
    add_copy_trials(all);
    add_async_trials(all);
    for (auto make : {make_graph_trials, make_moving_trials}) {
      for (AliasTrial& trial : make())
        all.push_back(std::move(trial));
    }
    return all;
  }();
  return trials;
}

}  // namespace quarry::facts
