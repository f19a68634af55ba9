// News: what the server tells of open devices that no request would show. It is asked for when the
// server says that there are any; each second, if it is one that does not (docs/bnbd-wire.md,
// "News").
#include <algorithm>
#include <array>
#include <utility>

#include "bnbd/client/device_impl.h"
#include "bnbd/client/session_impl.h"

namespace braid::bnbd::client {

using base::Errc;
using base::Result;

namespace {

// From question to question: so often is a server asked that says again and again that it has news.
constexpr uint64_t kPauseNs = 10 * base::kMillisecond;
constexpr uint64_t kAgainNs = base::kSecond;  // after a question that failed

}  // namespace

/// Requests flow by a path, perhaps to another version of the server.
void SessionImpl::follow_news() {
  if (noticed_) {
    ask_news_soon();
  } else if (limits().notices) {
    home_.cancel(news_timer_);
  } else if (!news_timer_.pending()) {
    ask_news_later();
  }
}

void SessionImpl::ask_news_later() {
  if (closing_ || !limits().braid_peer || options_.news_interval_ns == base::kNever) return;
  home_.schedule_after(news_timer_, options_.news_interval_ns);
}

void SessionImpl::ask_news_soon() {
  if (!path_up_ || closing_) return;
  home_.schedule(news_timer_, std::max(home_.now_ns(), asked_news_at_ns_ + kPauseNs));
}

/// Without a path, follow_news() comes back to it; during a question, ask_news().
void SessionImpl::notice() {
  if (std::exchange(noticed_, true)) return;
  if (!news_task_ || news_task_.done()) ask_news_soon();
}

bool SessionImpl::opening() const {
  return !opening_.empty() || *reopening_alone_ > 0 || (reopen_task_ && !reopen_task_.done());
}

/// Of news that came meanwhile some may have found nobody: they may be of what was being opened,
/// and newer than the answer to OPEN. The server has them still.
void SessionImpl::opening_ended() {
  if (path_up_ && std::exchange(told_early_, false)) notice();
}

bool SessionImpl::asks_news() const {
  if (noticed_) return true;
  return !limits().notices &&
         std::any_of(devices_.begin(), devices_.end(),
                     [](const DeviceImpl* device) { return device->open_at_server(); });
}

void SessionImpl::news_due(base::Timer& timer) {
  auto& self = *static_cast<SessionImpl*>(timer.context);
  if (self.closing_) return;
  if (!self.limits().notices) self.ask_news_later();
  const bool asking = self.news_task_ && !self.news_task_.done();
  if (asking || !self.path_up_ || !self.asks_news()) return;
  self.news_task_ = self.ask_news();
  self.news_task_.start();
}

base::Task<void> SessionImpl::ask_news() {
  const uint64_t generation = path_generation_;
  noticed_ = false;
  asked_news_at_ns_ = home_.now_ns();
  auto more = co_await ask_news_once();
  asked_news_at_ns_ = home_.now_ns();  // it may have waited for a permit, and come there only now
  const bool moot = generation != path_generation_ || closing_;  // all is opened anew, or nothing
  if (more.ok() || moot) {
    noticed_ = noticed_ || (more.ok() && *more);
    if (noticed_) ask_news_soon();
    co_return;
  }
  log_.warning("no news of {}: {}", server_text(), more.error().message());
  if (!limits().notices) co_return;  // asked again anyway
  // No further notice will come for what this question would have told.
  noticed_ = true;
  home_.schedule_after(news_timer_, kAgainNs);
}

/// True if there may be more.
base::Task<Result<bool>> SessionImpl::ask_news_once() {
  const uint64_t generation = path_generation_;
  const wire::News question = wire::make_news(news_seen_);
  std::array<std::byte, wire::kNewsBytesMax> answer{};
  const std::string what = "the question for news";
  BRAID_CO_TRY(const Errc status,
               co_await admin(what, trs::Direction::kRead, wire::bytes_of(question), answer));
  if (status != Errc::kOk) {
    co_return base::make_error(status, "the server refused to tell: {}", to_string(status));
  }
  BRAID_CO_TRY(const wire::NewsList news, wire::parse_news_answer(answer));
  if (generation != path_generation_) co_return false;
  for (const wire::DeviceNews& told : news.items) {
    // By index: what is told may make a user open or close devices.
    for (size_t i = 0; i < devices_.size(); ++i) devices_[i]->news(told);
  }
  if (opening()) {  // they must not be forgotten: opening_ended() asks for them again
    told_early_ = told_early_ || !news.items.empty();
    co_return false;
  }
  news_seen_ = news.newest;
  co_return news.items.size() == wire::kNewsItemsMax;
}

}  // namespace braid::bnbd::client
