// A hostile process on the in-host wire: the other end of a connection's socket, and of all memory
// that is shared.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "tests/fuzz/inhost_shipping.h"
#include "tests/fuzz/two_party.h"
#include "vhca/soft/inhost/cm_messages.h"
#include "vhca/soft/inhost/layout.h"
#include "vhca/soft/mr_table.h"

namespace braid::fuzz {

/// The peer: the other end of the socket, and all that is shared.
class InHostPeer {
 public:
  InHostPeer(InHostProcess& process, Numbers& numbers)
      : process_(process),
        numbers_(numbers),
        geometry_(vhca::soft::inhost::Geometry::for_receives(16, 4096, 1)),
        table_(share(kEntries * sizeof(vhca::soft::MrEntry))),
        inbound_(share(geometry_.total_bytes())),
        data_(share(kDataBytes)),
        socket_(std::move(*process.host->connect_local(process.name))) {}

  void request() {
    vhca::soft::inhost::CmMessage message;
    message.kind = vhca::soft::inhost::CmKind::kRequest;
    const uint32_t number = ++process_.peers;
    std::memcpy(message.end.device.data(), &number, sizeof(number));
    message.end.qp_number = 77;
    message.end.geometry = geometry_;
    message.end.mr_capacity = kEntries;
    message.end.has_heavy_fence = process_.host->has_heavy_fence();
    message.end.shares_receives = numbers_.odd(8);
    open_gate(false);
    send(message, {&table_->handle(), &inbound_->handle()});
  }
  /// Reads what came; with the reply comes the other end's memory.
  void listen() {
    if (!socket_) return;
    std::array<std::byte, vhca::soft::inhost::kCmMessageMax> bytes;
    for (;;) {
      std::vector<std::unique_ptr<base::Handle>> handles;
      auto came = socket_->receive(bytes, handles);
      if (!came.ok()) return;
      auto message =
          vhca::soft::inhost::parse_cm_message(std::span(bytes).first(*came), handles.size());
      require(message.ok(), "the shipping end keeps the rules");
      if (message->kind != vhca::soft::inhost::CmKind::kReply || outbound_) continue;
      outbound_geometry_ = message->end.geometry;
      auto mapped =
          process_.host->map_segment(std::move(handles[1]), outbound_geometry_.total_bytes());
      if (mapped.ok()) outbound_ = std::move(*mapped);
    }
  }
  void ready() {
    vhca::soft::inhost::CmMessage message;
    message.kind = vhca::soft::inhost::CmKind::kReady;
    send(message, {});
  }
  void announce() {
    vhca::soft::inhost::CmMessage message;
    message.kind = numbers_.odd(4) ? vhca::soft::inhost::CmKind::kRetire
                                   : vhca::soft::inhost::CmKind::kSegment;
    message.segment.id = numbers_.odd(4) ? numbers_.next<uint32_t>() : numbers_.below(4);
    if (message.kind == vhca::soft::inhost::CmKind::kRetire) return send(message, {});
    message.segment.size_bytes = numbers_.odd(4) ? numbers_.next<uint32_t>() : kDataBytes;
    send(message, {&data_->handle()});
  }
  void disconnect() {
    vhca::soft::inhost::CmMessage message;
    message.kind = vhca::soft::inhost::CmKind::kDisconnect;
    send(message, {});
  }
  void rubbish() {
    if (!socket_) return;
    const std::vector<std::byte> bytes = numbers_.take(numbers_.next<uint8_t>());
    if (!bytes.empty()) (void)socket_->send(bytes);
  }
  /// Gone: no copy of it is under way any more.
  void leave() {
    if (outbound_) {
      auto& active = outbound().head().activity.active;
      active.store((active.load(std::memory_order_relaxed) | 1) + 1, std::memory_order_release);
    }
    socket_.reset();
  }

  // --- in memory
  void open_gate(bool odd) {
    vhca::soft::inhost::Gate gate{
        .state = vhca::soft::inhost::EndState::kOpen, .access = uint8_t{kInHostAccess}, .pd = kPd};
    const uint64_t word = odd ? numbers_.next<uint64_t>() : gate.pack();
    inbound().head().control.gate.store(word, std::memory_order_release);
  }
  /// A registration of its memory. Never foreign memory: that would be this program's own.
  void register_memory() {
    const uint32_t index = numbers_.below(4);
    vhca::soft::MrEntry& entry = entries()[index];
    entry.key.store(key_of(index), std::memory_order_relaxed);
    entry.access.store(numbers_.odd(8) ? numbers_.next<uint8_t>() : kInHostAccess,
                       std::memory_order_relaxed);
    entry.pd.store(numbers_.odd(8) ? numbers_.next<uint32_t>() : kPd, std::memory_order_relaxed);
    entry.address.store(numbers_.odd(8) ? numbers_.next<uint64_t>() : kBase,
                        std::memory_order_relaxed);
    entry.length.store(numbers_.odd(8) ? numbers_.next<uint64_t>() : kDataBytes,
                       std::memory_order_relaxed);
    entry.offset.store(numbers_.odd(8) ? numbers_.next<uint64_t>() : 0, std::memory_order_relaxed);
    entry.segment.store(numbers_.below(4), std::memory_order_relaxed);
    entry.generation.store(numbers_.odd(8) ? 1 : 2, std::memory_order_release);
  }
  static uint32_t key_of(uint32_t index) { return index << vhca::soft::kKeyLowBits | 1; }

  /// Gives receives, and takes what has come.
  void give_credit() {
    vhca::soft::inhost::SegmentHead& head = inbound().head();
    if (numbers_.odd(8)) {
      head.credit.drained_slots.store(numbers_.next<uint64_t>(), std::memory_order_relaxed);
      head.credit.drained_bytes.store(numbers_.next<uint64_t>(), std::memory_order_relaxed);
    }
    credit_ += numbers_.below(16);
    for (uint32_t i = 0; i < geometry_.receives; ++i) {
      inbound().length_at(i).store(numbers_.flag() ? numbers_.next<uint32_t>() : 4096,
                                   std::memory_order_relaxed);
      inbound().key_at(i, 0).store(i % 4 == 0 ? key_of(i / 4 % 4) : 0, std::memory_order_relaxed);
      if (numbers_.empty()) break;
    }
    head.credit.refused.store(numbers_.below(4), std::memory_order_relaxed);
    head.credit.posted.store(numbers_.odd(8) ? numbers_.next<uint64_t>() : credit_,
                             std::memory_order_release);
  }
  /// A message, at its place in the ring of the other end.
  void push_slot() {
    if (!outbound_) return;
    vhca::soft::inhost::Slot& slot = outbound().slot_at(pushed_);
    slot.imm.store(numbers_.next<uint8_t>(), std::memory_order_relaxed);
    vhca::soft::inhost::SlotWord word;
    word.kind = static_cast<vhca::soft::inhost::SlotKind>(1 + (numbers_.below(6) + 2) % 6);
    word.bytes = numbers_.flag() ? numbers_.next<uint16_t>() : 0;
    slot.length.store(numbers_.odd(4) ? numbers_.next<uint32_t>() : word.bytes,
                      std::memory_order_relaxed);
    word.flags = static_cast<uint8_t>(numbers_.odd(4) ? numbers_.below(16)
                                                      : vhca::soft::inhost::kSlotHasImm);
    word.sequence = static_cast<uint32_t>(++pushed_);
    slot.word.store(word.pack(), std::memory_order_release);
  }
  void scribble() {
    const bool theirs = numbers_.flag() && outbound_;
    base::Segment& segment = theirs ? *outbound_ : *inbound_;
    const size_t reach = numbers_.flag() ? segment.size() : 1024;
    const size_t at = numbers_.next<uint32_t>() % (reach / 8) * 8;
    const uint64_t value = numbers_.flag() ? numbers_.next<uint64_t>() : numbers_.next<uint8_t>();
    std::memcpy(segment.data() + at, &value, sizeof(value));
  }

  static constexpr uint32_t kEntries = 64;  // of its table
  static constexpr uint32_t kPd = 3;
  static constexpr uint64_t kBase = 0x10000;  // where its data is, in its own addresses
  static constexpr size_t kDataBytes = 16 << 10;

 private:
  std::unique_ptr<base::Segment> share(size_t bytes) {
    return std::move(*process_.host->create_segment(bytes, "fuzz peer"));
  }
  void send(const vhca::soft::inhost::CmMessage& message,
            const std::vector<const base::Handle*>& handles) {
    if (!socket_) return;
    const std::vector<std::byte> bytes =
        numbers_.bent(vhca::soft::inhost::encode_cm_message(message));
    if (!bytes.empty()) (void)socket_->send(bytes, handles);
  }
  vhca::soft::inhost::SegmentView inbound() const { return {inbound_->data(), geometry_}; }
  vhca::soft::inhost::SegmentView outbound() const {
    return {outbound_->data(), outbound_geometry_};
  }
  vhca::soft::MrEntry* entries() const {
    return reinterpret_cast<vhca::soft::MrEntry*>(table_->data());
  }

  InHostProcess& process_;
  Numbers& numbers_;
  const vhca::soft::inhost::Geometry geometry_;
  vhca::soft::inhost::Geometry outbound_geometry_;
  std::unique_ptr<base::Segment> table_, inbound_, data_, outbound_;
  std::unique_ptr<base::LocalSocket> socket_;
  uint64_t credit_ = 0, pushed_ = 0;
};

}  // namespace braid::fuzz
