// ChecksumTable: what is known of each block of a device, one word of 64 bits for each.
//
//   | state 2 | version 14 | 48: the checksum, or how many writes are under way |
//
//   unknown ──begin──> writing ──end, well──> known ──begin──> writing
//      ^                  │ begin (another write)                 a failed end: unknown
//      └──last end── several <┘
//
// begin() raises the version, so a reader who finds the same word after its read as before knows
// that no write began meanwhile: its data must have that checksum. (A version comes again after
// 16384 writes of the block within one read.)
//
// The words lie in chunks, which come with the size of the device and stay for as long as the
// table. What is cut off, or forgotten, is marked at once by chunk; the words are swept later.
//
// Threads: the data path on each of the device's reactors; words are atomic, each stands for
// itself. cut() on the home; sweep() and grow() on a worker, grow() one at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"

namespace braid::bnbd::filter {

class ChecksumTable {
 public:
  using Word = uint64_t;
  static constexpr uint64_t kBlocksPerChunk = 1 << 17;  // a MiB of words
  static constexpr uint64_t kSumMask = (uint64_t{1} << 48) - 1;

  ChecksumTable(uint32_t block_bytes, uint64_t memory_max_bytes);

  // --- data path
  /// The first block that is not covered.
  uint64_t covered_blocks() const { return covered_blocks_.load(std::memory_order_acquire); }
  /// A device may be shown as so large: beyond, words are to come.
  uint64_t shown_bytes_max() const { return shown_bytes_max_.load(std::memory_order_acquire); }
  /// Not a known one if the block is to be forgotten. `block` is covered.
  Word look(uint64_t block) const;
  static bool is_known(Word word) { return word >> 62 == kKnown; }
  static bool is_unknown(Word word) { return word >> 62 == kUnknown; }
  static uint64_t sum_of(Word word) { return word & kSumMask; }
  /// A write begins that will leave this checksum. Each has its end().
  void begin(uint64_t block, uint64_t sum);
  /// `known`: the write was done, and wrote all of the block with what begin() was told.
  void end(uint64_t block, bool known);
  /// If nothing has happened since `seen`, which was unknown.
  bool learn(uint64_t block, Word seen, uint64_t sum);

  // --- control
  /// What is known from this byte on is forgotten.
  void cut(uint64_t from_bytes);
  void sweep();
  bool needs_growth(uint64_t size_bytes) const;
  /// kNoMemory. What was covered stays so.
  base::Status grow(uint64_t size_bytes);
  uint64_t memory_bytes() const { return covered_blocks() * sizeof(Word); }

 private:
  enum State : uint64_t { kUnknown = 0, kKnown = 1, kWriting = 2, kSeveral = 3 };
  struct Chunk {
    std::unique_ptr<std::atomic<Word>[]> words;
    std::atomic<uint32_t> to_sweep{0};  // not 0: what it says is not valid
  };
  static Word make(State state, uint64_t version, uint64_t rest) {
    return uint64_t{state} << 62 | (version & 0x3fff) << 48 | (rest & kSumMask);
  }
  static State state_of(Word word) { return static_cast<State>(word >> 62); }
  static uint64_t version_of(Word word) { return word >> 48 & 0x3fff; }
  std::atomic<Word>& word(uint64_t block) {
    return chunks_[block / kBlocksPerChunk].words[block % kBlocksPerChunk];
  }
  static void forget(std::atomic<Word>& word);

  const uint32_t block_bytes_;
  std::vector<Chunk> chunks_;  // as many as there may ever be
  std::atomic<uint64_t> covered_blocks_{0};
  std::atomic<uint64_t> shown_bytes_max_{0};
};

}  // namespace braid::bnbd::filter
