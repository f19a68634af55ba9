#include "trs/server/lent.h"

#include <algorithm>

#include "trs/server/server_impl.h"

namespace braid::trs::server {

LentMemory::LentMemory(ServerImpl& server, std::weak_ptr<char> server_alive, uint32_t slot)
    : server_(server), server_alive_(std::move(server_alive)), slot_(slot) {}

LentMemory::~LentMemory() {
  if (!server_alive_.expired()) server_.take_back(slot_);
}

base::Result<std::unique_ptr<vhca::Mr>> ServerImpl::register_memory(std::byte* address,
                                                                    uint64_t length_bytes) {
  const auto free = std::find(lent_.begin(), lent_.end(), nullptr);
  if (free == lent_.end()) {
    return base::make_error(base::Errc::kNoMemory,
                            "the server lends {} stretches of memory already: {} are the most",
                            lent_.size(), kLentMax);
  }
  const auto slot = static_cast<uint32_t>(free - lent_.begin());
  auto memory = std::make_unique<LentMemory>(*this, std::weak_ptr<char>(alive_), slot);
  memory->address = address;
  memory->length_bytes = length_bytes;
  memory->access = IBV_ACCESS_LOCAL_WRITE;
  // An error gives back what other sessions have registered.
  for (const auto& session : sessions_) BRAID_CHECK(session->borrow(*memory));
  *free = memory.get();
  return std::unique_ptr<vhca::Mr>(std::move(memory));
}

void ServerImpl::take_back(uint32_t slot) {
  lent_[slot] = nullptr;
  for (const auto& session : sessions_) session->return_lent(slot);
}

}  // namespace braid::trs::server
