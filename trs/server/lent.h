// Memory outside the chunks from which reads are answered. Each path has a PD of its own, so
// that the keys of one reach nothing of another; so each path registers what is lent for itself, in
// the slot that the handle names (register.cc). Thread: the home reactor; queues read the slot of a
// handle.
#pragma once

#include <cstdint>
#include <memory>

#include "vhca/device.h"

namespace braid::trs::server {

class ServerImpl;

/// Stretches of memory that a server lends at one time.
inline constexpr uint32_t kLentMax = 1024;

/// What the user holds. Its keys are no keys of the device.
class LentMemory final : public vhca::Mr {
 public:
  LentMemory(ServerImpl& server, std::weak_ptr<char> server_alive, uint32_t slot);
  ~LentMemory() override;
  uint32_t slot() const { return slot_; }
  /// Gone with the object.
  std::weak_ptr<char> alive() const { return alive_; }

 private:
  ServerImpl& server_;
  const std::weak_ptr<char> server_alive_;  // the server may go first
  const uint32_t slot_;
  const std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace braid::trs::server
