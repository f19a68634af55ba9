// Queue: chunks that close when their request has come (docs/chunk-keys.md).
#include "trs/server/path.h"
#include "trs/server/queue.h"
#include "trs/server/session.h"
#include "trs/server/worker.h"

namespace braid::trs::server {

/// Opens the windows of this connection's chunks; opened() when all are. False: it has none.
bool Queue::bind_windows() {
  for (uint32_t i = 0; i < session_.queue_depth(); ++i) {
    if (session_.owner_of(i) != cid_) continue;
    Window& window = path_.window(i);
    vhca::SendWr wr = path_.bind_of(window);
    window.state = Window::State::kOpen;
    ++binds_due_;
    if (!connection_->post_local(wr)) return true;  // the path ends
  }
  return binds_due_ > 0;
}

/// A request has arrived; it is looked at in local_done(), when its client has no way to it.
const char* Queue::close_window(const RequestImm& imm) {
  Window& window = path_.window(imm.chunk);
  // A write without data needs no key, so its immediate can come all the same.
  if (window.state != Window::State::kOpen) return "names a chunk that is not granted";
  if (mutant("key-kept")) {
    take(imm);
    return nullptr;
  }
  if (!connection_->can_send()) return "came where there is no room for it";
  window.state = Window::State::kLeaving;
  window.offset_bytes = imm.offset_bytes;
  leaving_.push_back(window);
  vhca::SendWr wr{};
  wr.opcode = IBV_WR_LOCAL_INV;
  wr.invalidate_rkey = window.key;
  // On failure the path ends, and no completion may be taken for this window's.
  if (!connection_->post_local(wr)) window.unlink();
  return nullptr;
}

/// Goes ahead of the answer that gives the chunk to the client again, which counts as we do.
vhca::SendWr Queue::open_window(uint32_t chunk) {
  Window& window = path_.window(chunk);
  window.key = ibv_inc_rkey(window.key);
  window.state = Window::State::kOpen;
  return path_.bind_of(window);
}

void Queue::local_done(Connection&) {
  if (closing_) return;
  if (binds_due_ > 0) {
    if (--binds_due_ == 0) opened();
    return;
  }
  Window& window = *leaving_.pop_front();
  window.state = Window::State::kClosed;
  if (open_) take({window.index, window.offset_bytes});
}

}  // namespace braid::trs::server
