#include "vhca/soft/mr_table.h"

#include <bit>
#include <mutex>
#include <utility>

#include "vhca/verbs.h"

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
      entries_(capacity),
      published_(published),
      places_(capacity) {
  BRAID_ASSERT(std::has_single_bit(capacity) && capacity <= kCapacityMax);
  BRAID_ASSERT(published.empty() || published.size() == capacity);
  free_.reserve(capacity);
  for (uint32_t index = capacity; index-- > 0;) free_.push_back(index);
}

/// A random free place.
base::Result<uint32_t> MrTable::take_place() {
  if (free_.empty()) {
    return base::make_error(base::Errc::kNoMemory,
                            "all {} memory registrations of the device are in use", capacity_);
  }
  uint32_t random = 0;
  host_.random(std::as_writable_bytes(std::span(&random, 1)));
  uint32_t& chosen = free_[random % free_.size()];
  const uint32_t index = std::exchange(chosen, free_.back());
  free_.pop_back();
  return index;
}

uint32_t MrTable::new_key(uint32_t index) {
  constexpr uint32_t kLowMask = (1u << kKeyLowBits) - 1;
  const uint32_t place = (capacity_ - 1) << kKeyLowBits;
  uint32_t key = 0;
  host_.random(std::as_writable_bytes(std::span(&key, 1)));
  key = (key & ~place) | index << kKeyLowBits;
  // Never the tag 0, nor the last one.
  while ((key & ~place) == 0 || key == places_[index].key) {
    key = (key & ~kLowMask) | ((key + 1) & kLowMask);
  }
  return key;
}

void MrTable::write(uint32_t index, const MrView& view) {
  // Private and published entries go in step, so that nothing is read from the published one.
  const uint32_t generation = entries_[index].generation.load(std::memory_order_relaxed) + 2;
  write_entry(entries_[index], view, generation);
  if (!published_.empty()) write_entry(published_[index], view, generation);
}

/// Without its key the rest says nothing: who copies it out now has read it before, or not at all.
void MrTable::clear(uint32_t index) {
  entries_[index].key.store(0, std::memory_order_release);
  if (!published_.empty()) published_[index].key.store(0, std::memory_order_release);
}

base::Result<uint32_t> MrTable::add(const MrView& view) {
  const std::lock_guard guard(lock_);
  BRAID_TRY(const uint32_t index, take_place());
  MrView keyed = view;
  keyed.key = new_key(index);
  places_[index] = {.key = keyed.key};
  write(index, keyed);
  return keyed.key;
}

uint32_t MrTable::remove(uint32_t key) {
  const std::lock_guard guard(lock_);
  const uint32_t index = index_of(key);
  BRAID_ASSERT(key != 0 && places_[index].key == key && !places_[index].window);
  const bool others = places_[index].windows != 0 || places_[index].unfenced != 0;
  for (size_t i = 0; i < windows_.size() && others; ++i) {
    const uint32_t each = windows_[i];
    Place& window = places_[each];
    if (window.mr_index != index || window.mr_key != key) continue;
    if (window.bound) unbind(each);
    // The caller's fence covers a key that went with its queue pair, too, so that the window's end
    // needs none. More than one: some may be of a former MR.
    if (window.unfenced == 1) window.unfenced = 0;
  }
  clear(index);
  places_[index].unfenced = 0;
  free_.push_back(index);
  return others ? kEveryKey : key;
}

// --- memory windows

/// Windows are made by the hundred for each peer: they never take the half of the table that is
/// left for memory, without which no peer can be served at all.
base::Result<uint32_t> MrTable::add_window(uint32_t pd) {
  const std::lock_guard guard(lock_);
  if (free_.size() <= capacity_ / 2) {
    return base::make_error(base::Errc::kNoMemory,
                            "no place for a memory window: {} of the device's {} registrations are "
                            "in use, and the rest is for memory",
                            capacity_ - free_.size(), capacity_);
  }
  BRAID_TRY(const uint32_t index, take_place());
  places_[index] = {.key = new_key(index), .window = true, .pd = pd};
  places_[index].listed = static_cast<uint32_t>(windows_.size());
  windows_.push_back(index);
  return places_[index].key;
}

std::optional<uint32_t> MrTable::remove_window(uint32_t key) {
  const std::lock_guard guard(lock_);
  const uint32_t index = index_of(key);
  Place& place = places_[index];
  BRAID_ASSERT(place.window && place.key >> kKeyLowBits == key >> kKeyLowBits);
  std::optional<uint32_t> fence;
  if (place.bound) fence = place.key;
  if (place.unfenced != 0) fence = kEveryKey;
  if (place.bound) unbind_unfenced(index);
  place.window = false;
  places_[windows_.back()].listed = place.listed;
  windows_[place.listed] = windows_.back();
  windows_.pop_back();
  free_.push_back(index);
  return fence;
}

bool MrTable::bind(const Binding& binding) {
  constexpr uint32_t kRemote =
      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  constexpr uint32_t kChanges = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  const std::lock_guard guard(lock_);
  const uint32_t index = index_of(binding.key);
  Place& place = places_[index];
  if (!place.window || place.bound || place.pd != binding.pd ||
      place.key >> kKeyLowBits != binding.key >> kKeyLowBits) {
    return false;
  }
  MrView mr;
  if (!find(binding.mr_key, mr) || mr.pd != binding.pd || binding.length == 0 ||
      !mr.holds(binding.address, binding.length) || (mr.access & IBV_ACCESS_MW_BIND) == 0) {
    return false;
  }
  if ((binding.access & ~kRemote) != 0 ||
      ((binding.access & kChanges) != 0 && (mr.access & IBV_ACCESS_LOCAL_WRITE) == 0)) {
    return false;
  }
  MrView window = mr;
  window.key = binding.key;
  window.access = binding.access;
  window.pd = window_scope(binding.qp);
  window.address = binding.address;
  window.length = binding.length;
  if (mr.place.segment != kForeignMemory) window.place.offset += binding.address - mr.address;
  place.key = binding.key;
  place.bound = true;
  place.mr_index = index_of(binding.mr_key);
  place.mr_key = binding.mr_key;
  place.qp = binding.qp;
  ++places_[place.mr_index].windows;
  write(index, window);
  return true;
}

void MrTable::unbind(uint32_t index) {
  Place& place = places_[index];
  place.bound = false;
  --places_[place.mr_index].windows;
  clear(index);
}

/// Who resolved the key may be at work: the MR must not go without a fence.
void MrTable::unbind_unfenced(uint32_t index) {
  unbind(index);
  ++places_[index].unfenced;
  ++places_[places_[index].mr_index].unfenced;
}

bool MrTable::invalidate(uint32_t key, uint32_t qp) {
  const std::lock_guard guard(lock_);
  const Place& place = places_[index_of(key)];
  if (!place.bound || place.key != key || place.qp != qp) return false;
  unbind_unfenced(index_of(key));
  return true;
}

void MrTable::fenced(uint32_t key) {
  const std::lock_guard guard(lock_);
  Place& place = places_[index_of(key)];
  if (!place.window || place.key != key || place.bound || place.unfenced == 0) return;
  --place.unfenced;
  Place& mr = places_[place.mr_index];
  if (mr.key == place.mr_key && !mr.window && mr.unfenced != 0) --mr.unfenced;
}

bool MrTable::has_windows(uint32_t mr_key) const {
  const std::lock_guard guard(lock_);
  return places_[index_of(mr_key)].windows != 0;
}

void MrTable::unbind_windows_of_qp(uint32_t qp) {
  const std::lock_guard guard(lock_);
  for (const uint32_t index : windows_) {
    if (places_[index].bound && places_[index].qp == qp) unbind_unfenced(index);
  }
}

}  // namespace braid::vhca::soft
