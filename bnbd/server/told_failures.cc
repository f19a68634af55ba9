#include "bnbd/server/told_failures.h"

#include <algorithm>

namespace braid::bnbd::server {

bool ToldFailures::may_vouch(uint64_t failed, uint64_t connection) const {
  if (knows(failed)) return true;
  if (failed != told_) return false;
  return std::any_of(answers_.begin(), answers_.end(),
                     [&](const Answer& answer) { return answer.connection == connection; });
}

void ToldFailures::tell(uint64_t failed, uint64_t connection, const void* chunk) {
  if (knows(failed)) return;
  if (failed != told_ || answers_.size() >= kAnswersMax) answers_.clear();
  told_ = failed;
  answers_.push_back({connection, chunk});
}

void ToldFailures::used_again(const void* chunk) {
  const auto is_it = [chunk](const Answer& answer) { return answer.chunk == chunk; };
  if (std::none_of(answers_.begin(), answers_.end(), is_it)) return;
  seen_ = told_;
  answers_.clear();
}

}  // namespace braid::bnbd::server
