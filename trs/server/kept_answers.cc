#include "trs/server/kept_answers.h"

#include <algorithm>
#include <map>
#include <utility>

namespace braid::trs::server {

void KeptAnswers::keep(KeptSession session) {
  std::erase_if(sessions_, [&](const KeptSession& each) {
    return each.paths_uuid == session.paths_uuid && each.key == session.key;
  });
  sessions_.push_back(std::move(session));
  if (sessions_.size() > sessions_max_) make_room();
}

/// Of those who have most the one who has the oldest.
void KeptAnswers::make_room() {
  std::map<std::string, size_t> had;
  size_t most = 0;
  for (const KeptSession& each : sessions_) most = std::max(most, ++had[each.client]);
  sessions_.erase(std::find_if(sessions_.begin(), sessions_.end(),
                               [&](const KeptSession& each) { return had[each.client] == most; }));
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
