#include "vhca/soft/mr_table.h"

#include <bit>
#include <mutex>

namespace braid::vhca::soft {
namespace {

constexpr uint32_t kCapacityMax = 1u << 20;  // leaves tags of 12 bits

/// `generation`: even, another than before.
void write_entry(MrEntry& entry, const MrView& view, uint32_t generation) {
  entry.generation.store(generation - 1, std::memory_order_relaxed);
  // Release stores throughout: none may move before the odd generation is out.
  entry.key.store(view.key, std::memory_order_release);
  entry.access.store(view.access, std::memory_order_release);
  entry.pd.store(view.pd, std::memory_order_release);
  entry.address.store(view.address, std::memory_order_release);
  entry.length.store(view.length, std::memory_order_release);
  entry.offset.store(view.place.offset, std::memory_order_release);
  entry.segment.store(view.place.segment, std::memory_order_release);
  entry.generation.store(generation, std::memory_order_release);
}

}  // namespace

MrTable::MrTable(base::Host& host, uint32_t capacity, std::span<MrEntry> published)
    : host_(host),
      capacity_(capacity),
      entries_(std::make_unique<MrEntry[]>(capacity)),
      published_(published),
      last_key_(capacity, 0) {
  BRAID_ASSERT(std::has_single_bit(capacity) && capacity <= kCapacityMax);
  BRAID_ASSERT(published.empty() || published.size() == capacity);
  free_.reserve(capacity);
  for (uint32_t index = capacity; index-- > 0;) free_.push_back(index);
}

uint32_t MrTable::new_key(uint32_t index) {
  uint32_t key = 0;
  host_.random(std::as_writable_bytes(std::span(&key, 1)));
  key = key / capacity_ * capacity_ + index;
  while (key < capacity_ || key == last_key_[index]) key += capacity_;  // the next tag, never 0
  return key;
}

void MrTable::write(uint32_t index, const MrView& view) {
  // Private and published entries go in step, so that nothing is read from the published one.
  const uint32_t generation = entries_[index].generation.load(std::memory_order_relaxed) + 2;
  write_entry(entries_[index], view, generation);
  if (!published_.empty()) write_entry(published_[index], view, generation);
}

base::Result<uint32_t> MrTable::add(const MrView& view) {
  const std::lock_guard guard(lock_);
  if (free_.empty()) {
    return base::make_error(base::Errc::kNoMemory,
                            "all {} memory registrations of the device are in use", capacity_);
  }
  const uint32_t index = free_.back();
  free_.pop_back();
  MrView keyed = view;
  keyed.key = last_key_[index] = new_key(index);
  write(index, keyed);
  return keyed.key;
}

void MrTable::remove(uint32_t key) {
  const std::lock_guard guard(lock_);
  const uint32_t index = index_of(key);
  BRAID_ASSERT(key != 0 && last_key_[index] == key);
  write(index, MrView{});
  free_.push_back(index);
}

}  // namespace braid::vhca::soft
