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
  *free = memory.get();
  return std::unique_ptr<vhca::Mr>(std::move(memory));
}

void ServerImpl::take_back(uint32_t slot) {
  lent_[slot] = nullptr;
  const auto why = base::make_error(base::Errc::kCanceled, "the memory is lent no more");
  for (const auto& session : sessions_) session->end_use(slot, why);
}

std::shared_ptr<LentUse> LentUses::ask(const LentMemory& memory) {
  std::shared_ptr<LentUse>& use = uses_[memory.slot()];
  if (!use) use = std::make_shared<LentUse>(memory);
  return use;
}

const LentUse* LentUses::find(uint32_t slot) const {
  const auto found = uses_.find(slot);
  return found != uses_.end() ? found->second.get() : nullptr;
}

const LentMemory* LentUses::missing(const LentTable& registered) const {
  for (const auto& [slot, use] : uses_) {
    if (!registered.has(slot)) return use->memory;
  }
  return nullptr;
}

void LentUses::end(uint32_t slot, const base::Error& why) {
  const auto found = uses_.find(slot);
  if (found == uses_.end()) return;
  found->second->refused = why;
  uses_.erase(found);
  changed_->notify_all();
}

/// Paths that come up register it themselves, before they carry requests.
base::Task<base::Status> Session::use_memory(const vhca::Mr& memory) {
  const auto& lent = static_cast<const LentMemory&>(memory);
  const uint32_t slot = lent.slot();
  const std::shared_ptr<base::Signal> changed = lent_.changed();
  const std::shared_ptr<LentUse> use = lent_.ask(lent);
  for (size_t i = 0; i < paths_.size(); ++i) paths_[i]->use_lent();
  const auto waits_for = [slot](const auto& path) { return !path->may_go_without(slot); };
  while (use->refused.ok() && std::any_of(paths_.begin(), paths_.end(), waits_for)) {
    co_await changed->wait();
  }
  if (use->refused.ok() && !use->granted) grant(*use);
  co_return use->refused;
}

/// Paths that are away must be able to come back to it.
void Session::grant(LentUse& use) {
  for (size_t i = 0; i < lent_shares_.size(); ++i) {
    if (lent_shares_[i]->reserve()) continue;
    while (i-- > 0) lent_shares_[i]->release();
    return end_use(
        use.memory->slot(),
        base::make_error(base::Errc::kNoMemory,
                         "a path that is away could not come back: half of the "
                         "registrations of its device are those of lent memory already"));
  }
  use.granted = true;
}

bool Session::uses_memory(const vhca::Mr& memory) const {
  const LentUse* const use = lent_.find(static_cast<const LentMemory&>(memory).slot());
  return use != nullptr && use->granted;
}

void Session::end_use(uint32_t slot, const base::Error& why) {
  const bool answered = lent_.answered(slot);
  lent_.end(slot, why);
  for (const auto& path : paths_) path->return_lent(slot);
  if (!answered) return;
  for (const auto& share : lent_shares_) share->release();
}

}  // namespace braid::trs::server
