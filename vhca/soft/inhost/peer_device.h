// PeerDevice: another process's software HCA, as this one reaches it: its MR table and the segments
// that hold its registered memory, mapped once for all links between the two devices.
//
// Threads: entry() and mapping() from any thread without a lock, during a copy that a CopyMark
// announces; the rest from any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/host.h"
#include "vhca/soft/inhost/cm_messages.h"
#include "vhca/soft/mr_table.h"

namespace braid::vhca::soft::inhost {

/// Announced segments that can be mapped at a time. A power of two: a segment's place is its id
/// modulo this.
inline constexpr uint32_t kSegmentsMax = 4096;
/// The same of versions that are older, as far as that goes.
inline constexpr uint32_t kSegmentsOfOlder = 1024;

class PeerDevice {
 public:
  struct Mapping {
    uint32_t id;
    std::byte* data;
    size_t size_bytes;
    std::unique_ptr<base::Segment> segment;
  };

  /// `mr_table` holds `mr_capacity` entries (a power of two).
  PeerDevice(base::Host& host, base::PeerIdentity identity, const DeviceId& device,
             std::unique_ptr<base::Segment> mr_table, uint32_t mr_capacity,
             std::unique_ptr<base::PeerProcess> process,
             std::unique_ptr<base::Handle> mr_table_handle = nullptr);
  ~PeerDevice();
  PeerDevice(const PeerDevice&) = delete;
  PeerDevice& operator=(const PeerDevice&) = delete;

  const MrEntry& entry(uint32_t rkey) const { return entries_[rkey >> kKeyLowBits & mr_mask_]; }
  /// Null: not announced (yet), or retired.
  const Mapping* mapping(uint32_t id) const {
    const Mapping* mapping = mappings_[id % kSegmentsMax].load(std::memory_order_acquire);
    return mapping != nullptr && mapping->id == id ? mapping : nullptr;
  }
  base::PeerProcess& process() const { return *process_; }
  const base::PeerIdentity& identity() const { return identity_; }
  const DeviceId& device() const { return device_; }
  /// The memory of its table. Needs the constructor's handle: a mapping keeps none.
  const base::Handle& mr_table() const { return *mr_table_handle_; }
  /// False once the process is known to have ended.
  bool alive() const { return process_->alive(); }

  /// The peer announced a segment; each connection brings the announcement.
  base::Status add_segment(const CmSegment& segment, std::unique_ptr<base::Handle> handle);
  /// The peer says that nothing is registered in it any more. It stays mapped until
  /// unmap_retired().
  void retire_segment(uint32_t id);
  /// Waits for copies of our links that may still be under way; never call it from inside one.
  void unmap_retired();

  /// The copies of a link of ours, until remove_mark().
  void add_mark(std::shared_ptr<const CopyMark> mark);
  void remove_mark(const CopyMark& mark);

 private:
  base::Host& host_;
  const base::PeerIdentity identity_;
  const DeviceId device_;
  const std::unique_ptr<base::Segment> mr_table_;
  const std::unique_ptr<base::Handle> mr_table_handle_;
  const MrEntry* const entries_;
  const uint32_t mr_mask_;
  const std::unique_ptr<base::PeerProcess> process_;
  std::array<std::atomic<Mapping*>, kSegmentsMax> mappings_{};  // owned; replaced under mutex_
  std::mutex mutex_;
  std::map<uint32_t, uint32_t> last_ids_;          // by place: the latest announced there; mutex_
  std::vector<std::unique_ptr<Mapping>> retired_;  // mutex_
  std::vector<std::shared_ptr<const CopyMark>> marks_;  // mutex_
};

/// The peer devices that a device has connections to. Any thread.
class PeerTable {
 public:
  explicit PeerTable(base::Host& host) : host_(host) {}

  /// The peer device that `end` describes, at the process at the other end of the socket. Shared by
  /// all who ask for it while somebody holds it. Fails if the process cannot be watched: then
  /// nobody could tell when it has let go of our memory.
  base::Result<std::shared_ptr<PeerDevice>> find_or_open(const base::PeerIdentity& identity,
                                                         const CmEnd& end,
                                                         std::unique_ptr<base::Handle> mr_table);

 private:
  base::Host& host_;
  std::mutex mutex_;
  std::map<std::pair<int, DeviceId>, std::weak_ptr<PeerDevice>> peers_;
};

}  // namespace braid::vhca::soft::inhost
