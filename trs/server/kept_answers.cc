#include "trs/server/kept_answers.h"

#include <algorithm>
#include <map>
#include <utility>

namespace braid::trs::server {

void KeptAnswers::keep(KeptSession session) {
  std::erase_if(sessions_,
                [&](const KeptSession& each) { return each.paths_uuid == session.paths_uuid; });
  sessions_.push_back(std::move(session));
  if (sessions_.size() > sessions_max_) make_room();
}

void KeptAnswers::make_room() {
  std::map<std::string, size_t> had;
  for (const KeptSession& each : sessions_) ++had[each.client];
  const auto most = std::max_element(
      had.begin(), had.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto oldest =
      std::find_if(sessions_.begin(), sessions_.end(),
                   [&](const KeptSession& each) { return each.client == most->first; });
  sessions_.erase(oldest);
}

std::optional<KeptSession> KeptAnswers::take(const wire::Uuid& paths_uuid, const std::string& key,
                                             uint16_t cid_num) {
  const auto found = std::find_if(sessions_.begin(), sessions_.end(), [&](const KeptSession& each) {
    return each.paths_uuid == paths_uuid;
  });
  if (found == sessions_.end()) return std::nullopt;
  KeptSession session = std::move(*found);
  sessions_.erase(found);
  if (session.key != key || session.cid_num != cid_num) return std::nullopt;
  return session;
}

}  // namespace braid::trs::server
