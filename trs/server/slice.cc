#include "trs/server/slice.h"

#include "trs/server/server_impl.h"
#include "trs/server/session.h"
#include "trs/server/worker.h"

namespace braid::trs::server {

void Slice::close() {
  worker_.reactor().post([this, alive = std::weak_ptr<char>(alive_)] {
    if (alive.expired()) return;
    closing_ = true;
    report_quiet();
  });
}

void Slice::begin(Request& request) {
  at_user_.store(at_user() + 1, std::memory_order_relaxed);
  session_.server().user().request(request);
}

void Slice::ended(Request& request) {
  at_user_.store(at_user() - 1, std::memory_order_relaxed);
  if (request.queue != nullptr && request.deferred_to == nullptr) {
    request.queue->answer(request);
  } else {
    request.unlink();
    let_go(request);
  }
  if (closing_) report_quiet();
}

void Slice::let_go(Request& request) {
  Queue* const next = std::exchange(request.deferred_to, nullptr);
  request.give_back();
  if (next != nullptr) next->resume(request);
}

void Slice::report_quiet() {
  if (quiet_ || at_user() > 0) return;
  quiet_ = true;
  session_.post_home([&session = session_] { session.slice_quiet(); });
}

}  // namespace braid::trs::server
