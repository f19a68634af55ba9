#include "base/sim/disk.h"

#include <algorithm>
#include <cstring>

namespace braid::base::sim {

namespace {
constexpr uint64_t kMisdirectsOneIn = 50;
constexpr uint64_t kKeptOneIn = 8;  // of a reverting disk's flushes
}  // namespace

std::shared_ptr<SimDiskLock> SimDiskLock::take(std::shared_ptr<Holders> holders, bool exclusive) {
  if (holders->exclusive || (exclusive && holders->shared != 0)) return nullptr;
  if (exclusive) {
    holders->exclusive = true;
  } else {
    ++holders->shared;
  }
  return std::make_shared<SimDiskLock>(std::move(holders), exclusive);
}

SimDiskLock::~SimDiskLock() {
  if (exclusive_) {
    holders_->exclusive = false;
  } else {
    --holders_->shared;
  }
}

SimDisk::SimDisk(std::string identity, const SimDiskOptions& options, SimRandom random)
    : identity_(std::move(identity)),
      options_(options),
      random_(random),
      current_(options.size_bytes),
      durable_(options.size_bytes),
      dirty_(options.size_bytes / kSectorBytes),
      stored_as_(options.size_bytes / kSectorBytes) {
  BRAID_ASSERT(options.size_bytes % kSectorBytes == 0);
}

uint64_t SimDisk::completion_time(uint64_t now_ns, uint64_t bytes) {
  uint64_t latency_ns = random_.between(options_.latency_min_ns, options_.latency_max_ns);
  if (faults.slow_factor > 1) {
    latency_ns *= faults.slow_factor;
    ++counters_.slow;
  }
  const bool spared = faults.stalls_some && random_.one_in(2);
  if (faults.stalled_until_ns > now_ns && !spared) {
    ++counters_.stalled;
    return faults.stalled_until_ns + latency_ns;
  }
  if (medium_ != nullptr) return medium_->moved_at(file_of_medium_, now_ns, bytes) + latency_ns;
  return now_ns + latency_ns;
}

uint64_t SimDisk::moves(uint64_t left_bytes) {
  if (!faults.shortens || left_bytes <= kSectorBytes || !random_.one_in(2)) return left_bytes;
  ++counters_.shortened;
  return random_.between(1, left_bytes / kSectorBytes - 1) * kSectorBytes;
}

Errc SimDisk::check(IoOpcode opcode, uint64_t offset_bytes, uint64_t length_bytes) const {
  if (opcode == IoOpcode::kFlush) return Errc::kOk;
  const uint64_t block = options_.logical_block_bytes;
  if (offset_bytes % block != 0 || length_bytes % block != 0) return Errc::kInvalid;
  if (offset_bytes > options_.size_bytes || length_bytes > options_.size_bytes - offset_bytes)
    return Errc::kOutOfRange;
  return Errc::kOk;
}

Errc SimDisk::execute(IoOpcode opcode, bool force_unit_access, uint64_t offset_bytes,
                      uint64_t length_bytes, std::byte* data, uint64_t flush_covers) {
  ++counters_.operations;
  if (check(opcode, offset_bytes, length_bytes) != Errc::kOk) return Errc::kOutOfRange;  // shrunk
  const bool fails =
      faults.errors_per_million != 0 && random_.per_million(faults.errors_per_million);
  if (fails) ++counters_.errors;
  if (opcode == IoOpcode::kFlush) {
    if (fails) {
      fail_flush(flush_covers);
      return faults.error;
    }
    if (lies()) {
      ++counters_.flushes_ignored;
    } else {
      flush(flush_covers);
    }
    return Errc::kOk;
  }
  if (opcode == IoOpcode::kRead) {
    if (fails) return faults.error;
    if (length_bytes > 0) std::memcpy(data, current_.data() + offset_bytes, length_bytes);
    return Errc::kOk;
  }
  const std::byte* source = opcode == IoOpcode::kWrite ? data : nullptr;
  if (fails) return fail_store(offset_bytes, length_bytes, source, faults.error);
  if (faults.full && opcode != IoOpcode::kDiscard && random_.one_in(2)) {
    ++counters_.refused_for_room;
    return fail_store(offset_bytes, length_bytes, source, Errc::kNoSpace);
  }
  if (on_write && opcode == IoOpcode::kWrite) on_write(offset_bytes, {data, length_bytes});
  if (options_.misdirecting && opcode == IoOpcode::kWrite && random_.one_in(kMisdirectsOneIn))
    offset_bytes = elsewhere(length_bytes);
  const bool durable = force_unit_access && !lies();
  if (force_unit_access && lies()) ++counters_.flushes_ignored;
  store(offset_bytes, length_bytes, source, durable);
  return Errc::kOk;
}

/// Of a write that failed, any leading part may have reached the medium.
Errc SimDisk::fail_store(uint64_t offset_bytes, uint64_t length_bytes, const std::byte* data,
                         Errc error) {
  const uint64_t sectors = random_.between(0, length_bytes / kSectorBytes);
  store(offset_bytes, sectors * kSectorBytes, data, false);
  return error;
}

uint64_t SimDisk::elsewhere(uint64_t length_bytes) {
  ++counters_.misdirected;
  const uint64_t places = (options_.size_bytes - length_bytes) / options_.logical_block_bytes;
  return random_.between(0, places) * options_.logical_block_bytes;
}

/// Of what is to be set, or of the flush behind it, which then forgets what was in the cache.
Status SimDisk::fail_setting(const char* what) {
  if (faults.errors_per_million == 0 || !random_.per_million(faults.errors_per_million)) return {};
  ++counters_.errors;
  if (faults.sets_undurably) fail_flush(stores_);
  return make_error(faults.error, "a simulated error while {} was set", what);
}

Result<uint64_t> SimDisk::note() const {
  if (options_.block_device) return make_error(Errc::kNotSupported, "a disk keeps no note");
  return note_;
}

Status SimDisk::set_note(uint64_t note) {
  if (options_.block_device) return make_error(Errc::kNotSupported, "a disk keeps no note");
  const Status status = fail_setting("a note");
  if (status.ok() || faults.sets_undurably) note_ = note;
  return status;
}

Result<File::Mark> SimDisk::mark() const {
  if (options_.block_device) return make_error(Errc::kNotSupported, "a disk keeps no mark");
  return mark_;
}

Status SimDisk::set_mark(const File::Mark& mark) {
  if (options_.block_device) return make_error(Errc::kNotSupported, "a disk keeps no mark");
  if (faults.keeps_no_mark) return make_error(faults.error, "a simulated error for a mark");
  mark_ = mark;
  return {};
}

Status SimDisk::set_size(uint64_t size_bytes) {
  if (options_.block_device) return make_error(Errc::kNotSupported, "a disk has its size");
  if (size_bytes % options_.logical_block_bytes != 0) {
    return make_error(Errc::kInvalid, "{} bytes are no whole blocks", size_bytes);
  }
  const Status status = fail_setting("a size");
  if (status.ok() || faults.sets_undurably) resize(size_bytes);
  return status;
}

Status SimDisk::secure_erase(uint64_t offset_bytes, uint64_t length_bytes) {
  if (!options_.erases) return make_error(Errc::kNotSupported, "this disk erases nothing for good");
  const Errc done = execute(IoOpcode::kWriteZeroes, true, offset_bytes, length_bytes, nullptr);
  if (done != Errc::kOk) return make_error(done, "a simulated error while a range was erased");
  return {};
}

void SimDisk::resize(uint64_t size_bytes) {
  BRAID_ASSERT(size_bytes % kSectorBytes == 0);
  options_.size_bytes = size_bytes;
  const uint64_t sectors = size_bytes / kSectorBytes;
  current_.resize(size_bytes);
  durable_.resize(size_bytes);
  if (!earlier_.empty()) earlier_.resize(size_bytes);
  dirty_.resize(sectors);
  stored_as_.resize(sectors);
  std::erase_if(dirty_sectors_, [&](uint32_t sector) { return sector >= sectors; });
}

void SimDisk::store(uint64_t offset_bytes, uint64_t length_bytes, const std::byte* data,
                    bool durable) {
  ++stores_;
  const uint64_t first = offset_bytes / kSectorBytes;
  uint64_t chance = 0;
  for (uint64_t i = 0; i < length_bytes / kSectorBytes; ++i) {
    if (i % 32 == 0) chance = random_.next();
    store_sector(first + i, data != nullptr ? data + i * kSectorBytes : nullptr, durable,
                 chance >> (i % 32 * 2) & 3);
  }
}

void SimDisk::store_sector(uint64_t sector, const std::byte* data, bool durable, uint64_t chance) {
  std::byte* target = current_.data() + sector * kSectorBytes;
  // The cache may have written the previous content back before it was overwritten here; it has to
  // if a flush is on its way that covers it.
  const bool covered = stored_as_[sector] <= flush_covers_;
  if (dirty_[sector] && !durable && (covered || chance == 0)) make_durable(sector);
  stored_as_[sector] = stores_;
  if (data != nullptr) {
    std::memcpy(target, data, kSectorBytes);
  } else {
    std::memset(target, 0, kSectorBytes);
  }
  if (durable) {
    make_durable(sector);
  } else if (!dirty_[sector]) {
    dirty_[sector] = true;
    dirty_sectors_.push_back(static_cast<uint32_t>(sector));
    if (dirty_sectors_.size() > 2 * dirty_.size()) {
      // FUA and write-back leave stale entries; keep the list bounded.
      std::sort(dirty_sectors_.begin(), dirty_sectors_.end());
      dirty_sectors_.erase(std::unique(dirty_sectors_.begin(), dirty_sectors_.end()),
                           dirty_sectors_.end());
    }
  }
}

void SimDisk::make_durable(uint64_t sector) {
  std::memcpy(durable_.data() + sector * kSectorBytes, current_.data() + sector * kSectorBytes,
              kSectorBytes);
  dirty_[sector] = false;
}

void SimDisk::flush(uint64_t covers) {
  std::vector<uint32_t> left;
  for (const uint32_t sector : dirty_sectors_) {
    if (!dirty_[sector]) continue;
    if (stored_as_[sector] <= covers || random_.one_in(2)) {
      make_durable(sector);
    } else {
      left.push_back(sector);
    }
  }
  dirty_sectors_.swap(left);
  if (options_.reverting && random_.one_in(kKeptOneIn)) earlier_ = durable_;
}

/// As a kernel's cache: what could not be written is clean from then on. Reads return it until the
/// power is lost, and no later flush writes it.
void SimDisk::fail_flush(uint64_t covers) {
  const uint64_t written_per_million = random_.one_in(2) ? 0 : random_.below(1'000'000);
  for (const uint32_t sector : dirty_sectors_) {
    if (!dirty_[sector] || stored_as_[sector] > covers) continue;
    if (random_.per_million(written_per_million)) {
      make_durable(sector);
    } else {
      dirty_[sector] = false;
      ++counters_.sectors_dropped;
    }
  }
}

void SimDisk::power_loss() {
  // Everything lost, everything kept, or a mixture with its own ratio.
  const uint64_t kept_per_million = random_.one_in(3)   ? 0
                                    : random_.one_in(3) ? 1'000'000
                                                        : random_.below(1'000'000);
  for (const uint32_t sector : dirty_sectors_) {
    if (!dirty_[sector]) continue;
    if (random_.per_million(kept_per_million)) {
      ++counters_.sectors_kept;
      make_durable(sector);
    } else {
      ++counters_.sectors_lost;
      dirty_[sector] = false;
    }
  }
  dirty_sectors_.clear();
  if (!earlier_.empty()) durable_ = earlier_;
  current_ = durable_;
  faults = {};
  ++boot_;
}

}  // namespace braid::base::sim
