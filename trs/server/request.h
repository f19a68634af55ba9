// Request: one chunk's request at the server, from its arrival until its answer is posted.
//
// A session has one per chunk, made with the session. Thread: the reactor of the connection that
// owns the chunk (Queue); for a peer that does not pin its permits that is one for all.
#pragma once

#include <array>
#include <cstddef>

#include "base/intrusive_list.h"
#include "trs/server.h"
#include "trs/wire.h"

namespace braid::trs::server {

class Queue;

class Request final : public ServerRequest, public base::ListNode {
 public:
  void answer(base::Errc status, const DataBuffer* source) override;

  enum class State : uint8_t {
    kFree,     // the chunk belongs to the client
    kAtUser,   // the chunk belongs to the server's user
    kWaiting,  // answered; waits for a send slot in Queue::waiting_
  };
  State state = State::kFree;
  uint32_t index = 0;
  Queue* queue = nullptr;
  wire::SgDescriptor target{};  // where the data of a read goes
  base::Errc status = base::Errc::kOk;
  DataBuffer source;  // what is sent; set when answered
  std::array<std::byte, wire::kUserHeaderBytesMax> header{};
};

}  // namespace braid::trs::server
