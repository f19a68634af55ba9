// What a peer process writes into an inbound segment and an MR table, as the owner of the one and
// the reader of the other meet it: the peer plays by the rules, breaks them in its slots, or
// scribbles anywhere. Whatever it does, what the ring hands out lies inside of the segment, fits
// the receive, and a broken ring stays broken.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "tests/fuzz/numbers.h"
#include "tests/fuzz/reached.h"
#include "vhca/soft/inhost/inbound_ring.h"
#include "vhca/soft/remote_check.h"

namespace {

namespace soft = braid::vhca::soft;
namespace inhost = braid::vhca::soft::inhost;
using braid::fuzz::Numbers;

braid::fuzz::Reached arrived("an arrival"), immediate("an immediate"), wished("a wish"),
    faulty("a fault"), broke("the peer breaks the ring");
braid::fuzz::Verdicts registrations("a peer's registration");

void require(bool condition) {
  if (!condition) std::abort();
}

/// Memory of exactly the segment's size: the sanitizer sees what goes beyond.
struct Memory {
  explicit Memory(size_t size_bytes)
      : bytes(static_cast<std::byte*>(std::aligned_alloc(4096, size_bytes))) {
    std::memset(bytes, 0, size_bytes);
  }
  ~Memory() { std::free(bytes); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* const bytes;
};

class Game {
 public:
  Game(const inhost::Geometry& geometry, bool shares_receives, Numbers numbers)
      : geometry_(geometry),
        memory_(geometry.total_bytes()),
        view_(memory_.bytes, geometry),
        shares_receives_(shares_receives),
        ring_(view_, shares_receives),
        numbers_(numbers) {}

  void play() {
    while (!numbers_.empty()) {
      switch (numbers_.next<uint8_t>() % 7) {
        case 0:
          post();
          break;
        case 1:
          look(true);
          break;
        case 2:
          look(false);
          break;
        case 3:
          push_slot();
          break;
        case 4:
          scribble();
          break;
        case 5:
          ring_.arm(static_cast<inhost::ArmMode>(numbers_.next<uint8_t>() % 3));
          break;
        default:
          read_registration();
          break;
      }
    }
    for (size_t i = 0; i <= geometry_.slots; ++i) look(true);
  }

 private:
  void post() {
    if (shares_receives_) return;  // only if the peer wishes
    const auto length = numbers_.next<uint16_t>();
    if (receives_.size() - consumed_ == geometry_.receives) return;
    ring_.post(length, (length & 1) == 0);
    receives_.push_back(length);
  }

  void look(bool take) {
    soft::Arrival arrival;
    const soft::Next next = ring_.next(arrival);
    if (broken_) require(next == soft::Next::kBroken);
    if (next == soft::Next::kBroken) {
      broken_ = true;
      broke.count();
      require(!ring_.broken_rule().empty());
    }
    if (next == soft::Next::kFault) {
      faulty.count();
      require(arrival.fault == IBV_WC_SUCCESS || arrival.fault == IBV_WC_LOC_LEN_ERR ||
              arrival.fault == IBV_WC_LOC_PROT_ERR);
    }
    if (next == soft::Next::kWish) answer_wish();
    if (next != soft::Next::kArrival) return;
    require(consumed_ < receives_.size());
    (arrival.has_imm ? immediate : arrived).count();
    check_payload(arrival);
    if (!take) return;
    ring_.pop();
    ++consumed_;
  }

  void answer_wish() {
    wished.count();
    require(shares_receives_ && consumed_ == receives_.size());
    const auto length = numbers_.next<uint16_t>();
    if (length % 3 == 0) return ring_.refuse_wish();
    ring_.post(length, (length & 1) == 0);
    receives_.push_back(length);
  }

  void check_payload(const soft::Arrival& arrival) {
    if (arrival.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
      require(arrival.has_imm && arrival.payload.empty());
      return;
    }
    require(!arrival.invalidates || arrival.opcode == IBV_WC_RECV);
    require(arrival.opcode == IBV_WC_RECV && arrival.payload.size() == arrival.length);
    require(arrival.length <= std::max(receives_[consumed_], inhost::kSlotPayloadBytes));
    unsigned sum = 0;
    for (const std::byte byte : arrival.payload) sum += std::to_integer<unsigned>(byte);
    require(sum <= 255 * arrival.length);
  }

  /// At the peer's place in the ring, with the sequence that the owner waits for.
  void push_slot() {
    inhost::Slot& slot = view_.slot_at(pushed_);
    slot.imm.store(numbers_.next<uint32_t>(), std::memory_order_relaxed);
    slot.length.store(numbers_.next<uint32_t>(), std::memory_order_relaxed);
    inhost::SlotWord word;
    word.sequence = static_cast<uint32_t>(++pushed_);
    word.kind = static_cast<inhost::SlotKind>(numbers_.next<uint8_t>() % 7);
    word.flags = numbers_.next<uint8_t>() % 9;
    word.bytes = numbers_.next<uint16_t>();
    slot.word.store(word.pack(), std::memory_order_release);
  }

  void scribble() {
    const uint64_t at = numbers_.next<uint32_t>() % (geometry_.total_bytes() - sizeof(uint64_t));
    const auto value = numbers_.next<uint64_t>();
    std::memcpy(memory_.bytes + at, &value, sizeof(value));
  }

  /// A registration in the peer's table: what it allows lies in one piece, without overflow.
  void read_registration() {
    soft::MrEntry entry;
    entry.generation.store(numbers_.next<uint8_t>(), std::memory_order_relaxed);
    entry.key.store(numbers_.next<uint8_t>(), std::memory_order_relaxed);
    entry.access.store(numbers_.next<uint8_t>(), std::memory_order_relaxed);
    entry.pd.store(0, std::memory_order_relaxed);
    entry.address.store(numbers_.next<uint64_t>(), std::memory_order_relaxed);
    entry.length.store(numbers_.next<uint64_t>(), std::memory_order_relaxed);
    const uint32_t key = numbers_.next<uint8_t>();
    const auto start = numbers_.next<uint64_t>();
    const auto length = numbers_.next<uint32_t>();
    soft::MrView view;
    if (!soft::read_mr(entry, key, view)) return;
    require(key != 0 && view.key == key);
    const auto status = soft::check_mr_access(IBV_WR_RDMA_WRITE, view, 0, 1, start, length);
    if (!registrations.count(status == IBV_WC_SUCCESS)) return;
    require((view.access & IBV_ACCESS_REMOTE_WRITE) != 0);
    require(start >= view.address && length <= view.length);
    require(start - view.address <= view.length - length);
  }

  const inhost::Geometry geometry_;
  Memory memory_;
  const inhost::SegmentView view_;
  const bool shares_receives_;
  inhost::InboundRing ring_;
  Numbers numbers_;
  std::vector<uint32_t> receives_;  // posted, by their number
  size_t consumed_ = 0;
  uint64_t pushed_ = 0;  // by the peer
  bool broken_ = false;
};

}  // namespace

/// The first byte chooses the geometry; then come moves of both sides.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto geometry =
      inhost::Geometry::for_receives(data[0] % 2 == 0 ? 16 : 32, data[0] % 3 == 0 ? 4096 : 8192);
  require(geometry.valid());
  Game(geometry, data[0] % 5 == 0, Numbers({data + 1, size - 1})).play();
  return 0;
}
