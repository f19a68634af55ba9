// MrTable: what a software HCA's keys mean. One per device; one cache line per registration.
//
//   key (lkey and rkey are one value) = tag, high part | index | tag, low 8 bits
//   The place of a key is random, and so is its tag, which is never 0. Of a window the program
//   chooses the low 8 bits at each bind.
//
// The device checks keys against its private copy. A wire whose peers resolve rkeys themselves
// (in-host) gives memory that the peers map: each entry is published there as well, and no byte of
// it is ever read back, so that a scribbling peer harms no one else.
//
// A reader of a published entry copies it out between two looks at `generation` (read_mr). What it
// then does with the memory is fenced by the wire: Wire::fence_peers(), or of one window
// Link::fence_window(), runs after the key is gone.
//
// Threads: add and remove from any thread; find and read_mr without a lock, from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/host.h"
#include "base/lazy_array.h"
#include "base/result.h"
#include "vhca/soft/shared_word.h"
#include "vhca/soft/spin_lock.h"

namespace braid::vhca::soft {

inline constexpr uint32_t kKeyLowBits = 8;
inline constexpr uint32_t kEveryKey = 0;  // for Wire::fence_peers(): whatever key they resolved
inline constexpr uint32_t kForeignMemory = UINT32_MAX;  // not in a segment that peers can map

/// Where registered memory lies, as the wire's peers name it.
struct MrPlace {
  uint32_t segment = kForeignMemory;  // the wire's number of a shared segment
  uint64_t offset = 0;                // in that segment
  uint32_t pd = 0;                    // whose peers know that number; is not published
};

/// A registration, copied out.
struct MrView {
  uint32_t key = 0;
  uint32_t access = 0;  // ibv_access_flags
  uint32_t pd = 0;      // SoftPd::id(), or window_scope()
  uint64_t address = 0;
  uint64_t length = 0;
  MrPlace place;

  /// True if [start, start + bytes) lies inside. No overflow for any value.
  bool holds(uint64_t start, uint64_t bytes) const {
    return start >= address && bytes <= length && start - address <= length - bytes;
  }
};

/// In place of a PD: a window that is bound through this QP and serves it alone.
constexpr uint32_t kWindowScope = 1u << 31;
constexpr uint32_t window_scope(uint32_t qp_number) {
  return kWindowScope | qp_number;
}

/// A registration as it lies in memory. generation is odd while the entry changes; key 0 is free.
struct alignas(64) MrEntry {
  SharedWord<uint32_t> generation;
  SharedWord<uint32_t> key;
  SharedWord<uint32_t> access;
  SharedWord<uint32_t> pd;
  SharedWord<uint64_t> address;
  SharedWord<uint64_t> length;
  SharedWord<uint64_t> offset;
  SharedWord<uint32_t> segment;
  uint32_t reserved[3];
};
static_assert(sizeof(MrEntry) == 64 && alignof(MrEntry) == 64);
static_assert(SharedWord<uint64_t>::is_always_lock_free);

/// Copies `entry` out if it holds `key` and does not change meanwhile. `view` may be torn on false.
inline bool read_mr(const MrEntry& entry, uint32_t key, MrView& view) {
  // Acquire loads throughout: none may move behind the second look at the generation.
  const uint32_t before = entry.generation.load(std::memory_order_acquire);
  view.key = entry.key.load(std::memory_order_acquire);
  view.access = entry.access.load(std::memory_order_acquire);
  view.pd = entry.pd.load(std::memory_order_acquire);
  view.address = entry.address.load(std::memory_order_acquire);
  view.length = entry.length.load(std::memory_order_acquire);
  view.place.offset = entry.offset.load(std::memory_order_acquire);
  view.place.segment = entry.segment.load(std::memory_order_acquire);
  const uint32_t after = entry.generation.load(std::memory_order_relaxed);
  return before == after && (before & 1) == 0 && key != 0 && view.key == key;
}

class MrTable {
 public:
  /// `capacity`: a power of two, at most 2^20. `published`: zero-filled memory of as many entries
  /// that outlives the table, or empty.
  MrTable(base::Host& host, uint32_t capacity, std::span<MrEntry> published);
  MrTable(const MrTable&) = delete;
  MrTable& operator=(const MrTable&) = delete;

  uint32_t capacity() const { return capacity_; }
  uint32_t index_of(uint32_t key) const { return key >> kKeyLowBits & (capacity_ - 1); }

  /// Enters a registration and gives its key; view.key is ignored. kNoMemory: the table is full.
  base::Result<uint32_t> add(const MrView& view);
  /// The key resolves no more when this returns, nor do those of windows bound to it. Who resolved
  /// one before may still be at work: the key to be fenced (Wire::fence_peers), kEveryKey if any of
  /// a window may be.
  uint32_t remove(uint32_t key);
  // --- memory windows
  /// A place and a key for a window of this PD, not bound.
  base::Result<uint32_t> add_window(uint32_t pd);
  /// Gives back the window that any key of it names. The key to be fenced, if any.
  std::optional<uint32_t> remove_window(uint32_t key);
  struct Binding {
    uint32_t key = 0;  // names the window; its low bits are new
    uint32_t pd = 0;
    uint32_t qp = 0;  // its number
    uint32_t mr_key = 0;
    uint32_t access = 0;
    uint64_t address = 0;
    uint64_t length = 0;
  };
  /// False, and nothing changed, if the window is bound already, or any of it may not be.
  bool bind(const Binding& binding);
  /// The key of a window resolves no more, as after remove(). False: `key` is not that of a window
  /// bound through this QP.
  bool invalidate(uint32_t key, uint32_t qp);
  /// After invalidate(): nobody who resolved the key is at work any more.
  void fenced(uint32_t key);
  bool has_windows(uint32_t mr_key) const;
  void unbind_windows_of_qp(uint32_t qp);

  /// Resolves a key of this device.
  bool find(uint32_t key, MrView& view) const {
    return read_mr(entries_[index_of(key)], key, view);
  }

 private:
  /// What a place of the table is used for.
  struct Place {
    uint32_t key = 0;  // the last one given there
    bool window = false;
    bool bound = false;
    uint32_t pd = 0;        // of a window
    uint32_t mr_index = 0;  // of one that was bound: its MR's place and key, and the QP
    uint32_t mr_key = 0;
    uint32_t qp = 0;
    uint32_t windows = 0;   // of an MR: bound to it
    uint32_t listed = 0;    // of a window: where it stands in windows_
    uint32_t unfenced = 0;  // keys of the window, or of the MR's, that went and may be at work
  };
  base::Result<uint32_t> take_place();
  uint32_t new_key(uint32_t index);
  void write(uint32_t index, const MrView& view);
  void clear(uint32_t index);
  void unbind(uint32_t index);
  void unbind_unfenced(uint32_t index);

  base::Host& host_;
  const uint32_t capacity_;
  const base::ZeroedArray<MrEntry> entries_;
  const std::span<MrEntry> published_;
  mutable SpinLock lock_{true};            // guards all below, and writing of entries
  std::vector<uint32_t> free_;             // indices
  std::vector<uint32_t> windows_;          // indices of windows
  const base::ZeroedArray<Place> places_;  // by index
};

}  // namespace braid::vhca::soft
