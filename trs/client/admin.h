// What stands behind one admin permit: memory of the session's own for a request and its answer.
//
// Whoever asked may be gone before the server answers (the time was over, the task was destroyed).
// The slot and its permit stay with the server until the answer comes or the path is fenced, so a
// late answer meets memory that is still its own. Thread: the session's home reactor.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "trs/client.h"
#include "trs/wire.h"

namespace braid::trs::client {

/// How an admin request ended, for the task that waits for it.
struct AdminOutcome {
  std::span<std::byte> data;  // the caller's
  std::optional<base::Errc> status;
  bool answered = false;  // by the server; else the status is a matter of the path
};

struct AdminSlot {
  ClientRequest request;
  std::array<std::byte, wire::kUserHeaderBytesMax> header{};
  std::span<std::byte> memory;  // registered
  std::string what;
  uint64_t since_ns = 0;
  bool in_use = false;
  std::weak_ptr<AdminOutcome> asker;  // expired: nobody waits any more
  LateAnswer late_answer;
};

/// How many permits of a server with these limits are for admin requests. `shared_features`: what
/// both sides offer.
uint32_t admin_permits(const wire::ConnRsp& granted, uint32_t shared_features);

}  // namespace braid::trs::client
