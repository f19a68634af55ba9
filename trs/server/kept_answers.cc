#include "trs/server/kept_answers.h"

#include <algorithm>
#include <utility>

namespace braid::trs::server {

void KeptAnswers::keep(KeptSession session) {
  std::erase_if(sessions_, [&](const KeptSession& each) {
    return each.paths_uuid == session.paths_uuid && each.key == session.key;
  });
  make_room(session.client);
  sessions_.push_back(std::move(session));
}

/// For one more of this client.
void KeptAnswers::make_room(const std::string& client) {
  const auto is_its = [&](const KeptSession& each) { return each.client == client; };
  const auto its = std::count_if(sessions_.begin(), sessions_.end(), is_its);
  if (static_cast<size_t>(its) >= room_.of_one_max) {
    sessions_.erase(std::find_if(sessions_.begin(), sessions_.end(), is_its));
  } else if (sessions_.size() >= room_.sessions_max) {
    sessions_.pop_front();
  }
}

std::optional<KeptSession> KeptAnswers::take(const wire::Uuid& paths_uuid, const std::string& key,
                                             uint16_t cid_num) {
  const auto found = std::find_if(sessions_.begin(), sessions_.end(), [&](const KeptSession& each) {
    return each.paths_uuid == paths_uuid && each.key == key && each.cid_num == cid_num;
  });
  if (found == sessions_.end()) return std::nullopt;
  KeptSession session = std::move(*found);
  sessions_.erase(found);
  return session;
}

}  // namespace braid::trs::server
