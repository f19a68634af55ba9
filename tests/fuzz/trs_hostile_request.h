// A request as a hostile client of TRS writes it into a chunk: [data | user header | message], each
// part as it should be but for what the input bends.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tests/fuzz/two_party.h"
#include "trs/session_rig.h"
#include "trs/wire.h"

namespace braid::fuzz {

/// What a client knows of one incarnation of its session.
struct HostileLife {
  static constexpr uint32_t kChunks = 16;
  uint32_t epoch = 0;
  /// By chunk: the newest request's. What its epoch was matters to a server that knows it still.
  std::array<uint32_t, kChunks> epochs{}, sequences{};

  void begin(uint32_t its_epoch) {
    if (!trs::wire::follows_epoch(its_epoch, epoch)) *this = {};
    epoch = its_epoch;
  }
};

class HostileRequest {
 public:
  /// `sequenced`: as the session's features have it; now and then it is made the other way.
  HostileRequest(Numbers& numbers, HostileLife& life, bool sequenced, uint32_t chunk)
      : numbers_(numbers), life_(life), chunk_(chunk) {
    read_ = numbers_.flag();
    data_bytes_ = numbers_.flag() ? numbers_.next<uint16_t>() % 5000 : 512;
    sequenced_ = sequenced != numbers_.odd(16);
  }

  /// What goes to at() in the chunk. Data of a read is asked for in `target`.
  std::vector<std::byte> make(std::byte* target, uint32_t target_key) {
    trs::testing::StoreOp op;
    op.offset = numbers_.next<uint16_t>();
    op.fail_errno = numbers_.odd(8) ? 5 : 0;
    op.from_store = numbers_.flag();
    std::vector<std::byte> bytes(read_ ? 0 : data_bytes_, std::byte{0x66});
    append(bytes, op);
    append(bytes, numbers_.bent(sequenced_ ? sequenced_message() : old_message()));
    if (has_target()) {
      trs::wire::SgDescriptor to;
      to.address = reinterpret_cast<uint64_t>(target);
      to.key = numbers_.odd(8) ? numbers_.next<uint32_t>() : target_key;
      to.length = data_bytes_;
      append(bytes, numbers_.bent(trs::wire::bytes_of(to)));
    }
    if (words_) append(bytes, trs::wire::UpperWords{});
    imm_offset_ = data_bytes_ + static_cast<uint32_t>(sizeof(op));
    if (numbers_.odd(16)) imm_offset_ = numbers_.next<uint32_t>() & 0x7fff;
    return bytes;
  }
  uint32_t at() const { return read_ ? data_bytes_ : 0; }
  uint32_t imm_offset() const { return imm_offset_; }

 private:
  static constexpr uint16_t kUserBytes = sizeof(trs::testing::StoreOp);

  bool has_target() const { return read_ && data_bytes_ > 0; }
  std::vector<std::byte> sequenced_message() {
    uint32_t& sequence = life_.sequences[chunk_];
    uint32_t& of_epoch = life_.epochs[chunk_];
    if (of_epoch != life_.epoch && (sequence == 0 || numbers_.flag())) {
      of_epoch = life_.epoch;
      sequence = 0;
    }
    const bool again = numbers_.odd(8);
    if (!again) sequence = trs::wire::next_sequence(sequence);
    words_ = numbers_.odd(8);
    trs::wire::SequencedMsg said;
    said.type = static_cast<uint16_t>(read_ ? 17 : 16);
    said.usr_len = kUserBytes;
    said.sg_cnt = static_cast<uint16_t>(has_target());
    said.flags = static_cast<uint16_t>(words_ ? trs::wire::kHasWords : 0);
    said.epoch = of_epoch;
    said.sequence = numbers_.odd(32) ? numbers_.next<uint32_t>() : sequence;
    return to_bytes(said);
  }
  std::vector<std::byte> old_message() {
    if (!read_) {
      trs::wire::WriteMsg said;
      said.usr_len = kUserBytes;
      return to_bytes(said);
    }
    trs::wire::ReadMsg said;
    said.usr_len = kUserBytes;
    said.flags = static_cast<uint16_t>(numbers_.odd(4));
    said.sg_cnt = static_cast<uint16_t>(has_target());
    return to_bytes(said);
  }

  Numbers& numbers_;
  HostileLife& life_;
  const uint32_t chunk_;
  bool read_ = false;
  bool sequenced_ = false;
  bool words_ = false;
  uint32_t data_bytes_ = 0;
  uint32_t imm_offset_ = 0;
};

}  // namespace braid::fuzz
