// Request: one chunk and its request at the server.
//
// A session has one per chunk, made when its first request comes; paths come and go. Thread: the
// reactor that owns the chunk (Slice), whichever path a request comes by; for a peer that does not
// pin its permits that is one for all. Between peers that lend permits a free chunk may go to
// another slice (docs/lent-permits.md).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/host.h"
#include "base/intrusive_list.h"
#include "trs/server.h"
#include "trs/wire.h"

namespace braid::trs::server {

class Queue;
class Slice;

class Request final : public ServerRequest, public base::ListNode {
 public:
  void answer(base::Errc status, const DataBuffer* source) override;
  /// The chunk is the client's. The caller's last access: another connection's thread may take it.
  void give_back() {
    state = State::kFree;
    memory.reset();
    queue = nullptr;
    if (lent)
      holder.store(holder.load(std::memory_order_relaxed) & ~kBusy, std::memory_order_release);
  }

  enum class State : uint8_t {
    kFree,      // the chunk belongs to the client
    kArriving,  // what came is being copied, in parts; in Queue::long_
    kAtUser,    // the chunk belongs to the server's user; in Queue::running_, if it has a queue
    kWaiting,   // answered; in Queue::waiting_ for a send slot, or in Queue::long_
  };
  State state = State::kFree;
  /// Where permits are lent: the connection number that had the chunk last, and kBusy while the
  /// chunk is not the client's. All else here belongs to that connection's thread while it is busy.
  std::atomic<uint32_t> holder{0};
  static constexpr uint32_t kBusy = 1u << 31;
  bool lent = false;  // permits of the session may be; never changes
  uint16_t cid = 0;   // by which the newest request came
  uint32_t index = 0;
  // Of the chunk's newest request. Sequence 0: none with a number so far. An epoch that is not the
  // session's: nothing has come for the chunk but what a former incarnation counted.
  uint32_t epoch = 0, sequence = 0;
  bool kept = false;  // it ended in a former incarnation, of which there is no data (KeptAnswers)
  Slice* slice = nullptr;
  Queue* queue = nullptr;       // by which the answer goes; null: that path is lost
  wire::SgDescriptor target{};  // where the data of a read goes
  bool invalidate = false;      // the client wants the target's key to be gone when it is answered
  std::shared_ptr<base::Segment> memory;  // that `data` lies in, once the path it came by is lost
  bool landed = false;                    // a write whose data is used where it has come
  wire::ParsedRequest arriving;  // kArriving: what it is to be; the rest here is the former one's
  uint32_t copied_bytes = 0;     // kArriving: of its data
  // The answer. It is kept until the next request, as it may be asked for again.
  base::Errc status = base::Errc::kOk;
  DataBuffer source;        // what is sent of a read
  uint32_t sent_bytes = 0;  // of it, in parts
  // Of a peer without numbers: a request that came for the chunk while its former one, whose path
  // is lost, was still running, or its answer waiting. It begins when that ends: Slice::let_go().
  // One that comes by a third path meanwhile takes its place.
  Queue* deferred_to = nullptr;
  uint32_t deferred_offset = 0;
  std::span<std::byte> header;  // kUserHeaderBytesMax bytes of the session's
};

}  // namespace braid::trs::server
