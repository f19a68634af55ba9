#include "bnbd/filter/checksum_table.h"

#include <algorithm>
#include <new>

namespace braid::bnbd::filter {

namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

}  // namespace

ChecksumTable::ChecksumTable(uint32_t block_bytes, uint64_t memory_max_bytes)
    : block_bytes_(block_bytes), chunks_(memory_max_bytes / (kBlocksPerChunk * sizeof(Word))) {}

ChecksumTable::Word ChecksumTable::look(uint64_t block) const {
  const Chunk& chunk = chunks_[block / kBlocksPerChunk];
  const Word word = chunk.words[block % kBlocksPerChunk].load(kRelaxed);
  if (chunk.to_sweep.load(kRelaxed) == 0) return word;
  return make(kWriting, 0, 0);  // nothing is to be compared with it, nor learned
}

void ChecksumTable::begin(uint64_t block, uint64_t sum) {
  std::atomic<Word>& at = word(block);
  Word old = at.load(kRelaxed);
  Word now = 0;
  do {
    const uint64_t version = version_of(old) + 1;
    const State state = state_of(old);
    if (state == kWriting)
      now = make(kSeveral, version, 2);
    else if (state == kSeveral)
      now = make(kSeveral, version, sum_of(old) + 1);
    else
      now = make(kWriting, version, sum);
  } while (!at.compare_exchange_weak(old, now, kRelaxed));
}

void ChecksumTable::end(uint64_t block, bool known) {
  std::atomic<Word>& at = word(block);
  Word old = at.load(kRelaxed);
  Word now = 0;
  do {
    const uint64_t version = version_of(old);
    BRAID_ASSERT(state_of(old) == kWriting || state_of(old) == kSeveral);
    if (state_of(old) == kWriting)
      now = known ? make(kKnown, version, sum_of(old)) : make(kUnknown, version, 0);
    else if (sum_of(old) > 1)
      now = make(kSeveral, version, sum_of(old) - 1);
    else
      now = make(kUnknown, version, 0);
  } while (!at.compare_exchange_weak(old, now, kRelaxed));
}

bool ChecksumTable::learn(uint64_t block, Word seen, uint64_t sum) {
  return word(block).compare_exchange_strong(seen, make(kKnown, version_of(seen), sum), kRelaxed);
}

/// A write that is under way leaves nothing known behind, but has its end all the same.
void ChecksumTable::forget(std::atomic<Word>& at) {
  Word old = at.load(kRelaxed);
  Word now = 0;
  do {
    if (state_of(old) == kKnown)
      now = make(kUnknown, version_of(old) + 1, 0);
    else if (state_of(old) == kWriting)
      now = make(kSeveral, version_of(old) + 1, 1);
    else
      return;
  } while (!at.compare_exchange_weak(old, now, kRelaxed));
}

/// The chunk in which the cut lies is swept here, at most a MiB of words.
void ChecksumTable::cut(uint64_t from_bytes) {
  const uint64_t covered = covered_blocks();
  const uint64_t first = from_bytes / block_bytes_;
  if (first >= covered) return;
  const uint64_t chunk = first / kBlocksPerChunk;
  for (uint64_t i = chunk + 1; i < covered / kBlocksPerChunk; ++i)
    chunks_[i].to_sweep.fetch_add(1, std::memory_order_release);
  for (uint64_t block = first; block < (chunk + 1) * kBlocksPerChunk; ++block) forget(word(block));
}

void ChecksumTable::sweep() {
  for (uint64_t i = 0; i < covered_blocks() / kBlocksPerChunk; ++i) {
    Chunk& chunk = chunks_[i];
    uint32_t cuts = chunk.to_sweep.load(std::memory_order_acquire);
    while (cuts != 0) {
      for (uint64_t block = 0; block < kBlocksPerChunk; ++block) forget(chunk.words[block]);
      if (chunk.to_sweep.compare_exchange_strong(cuts, 0, std::memory_order_acq_rel)) break;
    }
  }
}

bool ChecksumTable::needs_growth(uint64_t size_bytes) const {
  return size_bytes > shown_bytes_max();
}

/// Value-initialised words are touched: no page is missing when a request needs it.
base::Status ChecksumTable::grow(uint64_t size_bytes) {
  const uint64_t blocks = size_bytes / block_bytes_ + (size_bytes % block_bytes_ != 0 ? 1 : 0);
  const uint64_t wanted = (blocks + kBlocksPerChunk - 1) / kBlocksPerChunk;
  const uint64_t count = std::min<uint64_t>(wanted, chunks_.size());
  for (uint64_t i = covered_blocks() / kBlocksPerChunk; i < count; ++i) {
    chunks_[i].words.reset(new (std::nothrow) std::atomic<Word>[kBlocksPerChunk]());
    if (!chunks_[i].words)
      return base::make_error(base::Errc::kNoMemory, "no memory for the checksums of {} bytes",
                              size_bytes);
    covered_blocks_.store((i + 1) * kBlocksPerChunk, std::memory_order_release);
  }
  const bool all_there = covered_blocks() == chunks_.size() * kBlocksPerChunk;
  const uint64_t covered_bytes = covered_blocks() * block_bytes_;
  shown_bytes_max_.store(all_there ? UINT64_MAX : covered_bytes, std::memory_order_release);
  return {};
}

}  // namespace braid::bnbd::filter
