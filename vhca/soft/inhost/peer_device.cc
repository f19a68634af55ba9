#include "vhca/soft/inhost/peer_device.h"

namespace braid::vhca::soft::inhost {

using base::Result;
using base::Status;

PeerDevice::PeerDevice(base::Host& host, base::PeerIdentity identity, const DeviceId& device,
                       std::unique_ptr<base::Segment> mr_table, uint32_t mr_capacity,
                       std::unique_ptr<base::PeerProcess> process,
                       std::unique_ptr<base::Handle> mr_table_handle)
    : host_(host),
      identity_(identity),
      device_(device),
      mr_table_(std::move(mr_table)),
      mr_table_handle_(std::move(mr_table_handle)),
      entries_(reinterpret_cast<const MrEntry*>(mr_table_->data())),
      mr_mask_(mr_capacity - 1),
      process_(std::move(process)) {}

PeerDevice::~PeerDevice() {
  for (std::atomic<Mapping*>& mapping : mappings_) delete mapping.load();
}

Status PeerDevice::add_segment(const CmSegment& segment, std::unique_ptr<base::Handle> handle) {
  const std::lock_guard lock(mutex_);
  const uint32_t place = segment.id % kSegmentsMax;
  const auto last = last_ids_.find(place);
  // Another connection brought it already, and perhaps its end too.
  if (last != last_ids_.end() && segment.id <= last->second) return {};
  BRAID_TRY(auto mapped, host_.map_segment(std::move(handle), segment.size_bytes));
  auto mapping = std::make_unique<Mapping>();
  mapping->id = segment.id;
  mapping->data = mapped->data();
  mapping->size_bytes = segment.size_bytes;
  mapping->segment = std::move(mapped);
  last_ids_[place] = segment.id;
  Mapping* const before = mappings_[place].exchange(mapping.release(), std::memory_order_acq_rel);
  if (before != nullptr) retired_.emplace_back(before);
  return {};
}

void PeerDevice::retire_segment(uint32_t id) {
  const std::lock_guard lock(mutex_);
  std::atomic<Mapping*>& place = mappings_[id % kSegmentsMax];
  const Mapping* const present = place.load(std::memory_order_relaxed);
  if (present == nullptr || present->id != id) return;
  retired_.emplace_back(place.exchange(nullptr, std::memory_order_acq_rel));
}

void PeerDevice::unmap_retired() {
  std::vector<std::unique_ptr<Mapping>> retired;
  std::vector<std::shared_ptr<const CopyMark>> marks;
  {
    const std::lock_guard lock(mutex_);
    if (retired_.empty()) return;
    retired.swap(retired_);
    marks = marks_;
  }
  // Not under the lock: a copy that is waited for may want to add a segment.
  host_.heavy_fence();
  // The copies of other threads of this process; the rest of one is short.
  for (const auto& mark : marks) {
    const uint64_t copy = mark->activity.load(std::memory_order_acquire);
    if ((copy & 1) == 0) continue;
    while (mark->activity.load(std::memory_order_acquire) == copy) host_.yield();
  }
}

void PeerDevice::add_mark(std::shared_ptr<const CopyMark> mark) {
  const std::lock_guard lock(mutex_);
  marks_.push_back(std::move(mark));
}

void PeerDevice::remove_mark(const CopyMark& mark) {
  const std::lock_guard lock(mutex_);
  std::erase_if(marks_, [&mark](const auto& each) { return each.get() == &mark; });
}

Result<std::shared_ptr<PeerDevice>> PeerTable::find_or_open(
    const base::PeerIdentity& identity, const CmEnd& end, std::unique_ptr<base::Handle> mr_table) {
  const std::lock_guard lock(mutex_);
  const std::pair key(identity.pid, end.device);
  std::erase_if(peers_, [](const auto& entry) { return entry.second.expired(); });
  if (const auto found = peers_.find(key); found != peers_.end()) {
    if (auto peer = found->second.lock()) return peer;
  }
  const size_t table_bytes = size_t{end.mr_capacity} * sizeof(MrEntry);
  BRAID_TRY(auto handle, mr_table->duplicate());
  BRAID_TRY(auto mapped, host_.map_segment(std::move(mr_table), table_bytes));
  BRAID_TRY(auto process, host_.open_process(identity));
  auto peer = std::make_shared<PeerDevice>(host_, identity, end.device, std::move(mapped),
                                           end.mr_capacity, std::move(process), std::move(handle));
  peers_[key] = peer;
  return peer;
}

}  // namespace braid::vhca::soft::inhost
