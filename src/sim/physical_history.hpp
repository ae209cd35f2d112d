// SPDX-License-Identifier: Apache-2.0
// For each byte of one physical allocation: the last lifetime that covered it, and through which
// address. An interval map; what the entries mean is the oracle's business.
#pragma once

#include <iterator>
#include <map>

#include "base/bytes.hpp"

namespace quarry::sim {

// A lifetime's place in the oracle's table.
using LifetimeSlot = std::uint32_t;

struct HistorySpan {
  Bytes end = 0;        // offset behind the last byte
  Address address = 0;  // of the span's first byte, as the lifetime saw it
  LifetimeSlot slot = 0;
};

class PhysicalHistory {
 public:
  using Spans = std::map<Bytes, HistorySpan>;  // by offset; disjoint

  // The first span that overlaps [offset, ...), or a later one.
  Spans::iterator find_first(Bytes offset) {
    auto next = spans_.upper_bound(offset);
    if (next == spans_.begin()) return next;
    auto before = std::prev(next);
    return before->second.end > offset ? before : next;
  }
  Spans::iterator end() { return spans_.end(); }
  Spans& spans() { return spans_; }

  // Drops the spans that touch the one at `offset` and are no longer of interest, by
  // `is_done(slot)`. Otherwise the remains of cut spans grow with fragmentation. `add` as below.
  template <class IsDone, class Add>
  void drop_neighbours(Bytes offset, IsDone is_done, Add add) {
    const auto span = spans_.find(offset);
    if (span == spans_.end()) return;
    const auto drop = [&](Spans::iterator neighbour) {
      const LifetimeSlot slot = neighbour->second.slot;
      if (!is_done(slot)) return;
      spans_.erase(neighbour);
      add(slot, -1);
    };
    const auto next = std::next(span);
    if (next != spans_.end() && next->first == span->second.end) drop(next);
    if (span == spans_.begin()) return;
    const auto before = std::prev(span);
    if (before->second.end == offset) drop(before);
  }

  // Makes [offset, offset + bytes) one span. `add(slot, n)` is told how the number of spans of a
  // lifetime changes.
  template <class Add>
  void replace(Bytes offset, Bytes bytes, Address address, LifetimeSlot slot, Add add) {
    const Bytes end = offset + bytes;
    auto span = find_first(offset);
    if (span != spans_.end() && span->first == offset && span->second.end == end) {
      const LifetimeSlot before = span->second.slot;
      span->second = {end, address, slot};
      add(slot, 1);
      add(before, -1);
      return;
    }
    span = cut(span, offset, end, add);
    spans_.emplace_hint(span, offset, HistorySpan{end, address, slot});
    add(slot, 1);
  }

 private:
  // Removes what lies within [offset, end); keeps the parts of spans that stick out.
  template <class Add>
  Spans::iterator cut(Spans::iterator span, Bytes offset, Bytes end, Add add) {
    while (span != spans_.end() && span->first < end) {
      const Bytes begin = span->first;
      const HistorySpan old = span->second;
      int change = -1;
      if (begin < offset) {
        span->second.end = offset;
        ++change;
        ++span;
      } else {
        span = spans_.erase(span);
      }
      if (old.end > end) {
        span = spans_.emplace_hint(span, end,
                                   HistorySpan{old.end, old.address + (end - begin), old.slot});
        ++change;
      }
      if (change != 0) add(old.slot, change);
      if (old.end >= end) break;
    }
    return span;
  }

  Spans spans_;
};

}  // namespace quarry::sim
