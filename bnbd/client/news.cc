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

/// News that came while a device was being opened found nobody; they may be of it, and newer than
/// the answer to OPEN. What is told twice does no harm.
void SessionImpl::opened_after_news(uint64_t seen) {
  if (news_seen_ == seen) return;
  news_seen_ = 0;
  notice();
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
  for (bool more = true; more;) {
    noticed_ = false;
    asked_news_at_ns_ = home_.now_ns();
    auto told = co_await ask_news_once();
    if (generation != path_generation_ || closing_) break;  // all is opened anew, or nothing
    if (!told.ok()) {
      log_.warning("no news of {}: {}", server_text(), told.error().message());
      if (!limits().notices) co_return;  // asked again anyway
      // No further notice will come for what this question would have told.
      noticed_ = true;
      ask_news_later();
      co_return;
    }
    more = *told;
  }
  if (noticed_) ask_news_soon();
}

/// True if there may be more.
base::Task<Result<bool>> SessionImpl::ask_news_once() {
  const uint64_t generation = path_generation_;
  const uint64_t seen = news_seen_;
  const wire::News question = wire::make_news(seen);
  std::array<std::byte, wire::kNewsBytesMax> answer{};
  const std::string what = "the question for news";
  BRAID_CO_TRY(const Errc status,
               co_await admin(what, trs::Direction::kRead, wire::bytes_of(question), answer));
  if (status != Errc::kOk) {
    co_return base::make_error(status, "the server refused to tell: {}", to_string(status));
  }
  BRAID_CO_TRY(const wire::NewsList news, wire::parse_news_answer(answer));
  if (generation != path_generation_) co_return false;
  if (news_seen_ == seen) news_seen_ = news.newest;  // else all are to be told again
  for (const wire::DeviceNews& told : news.items) {
    // By index: what is told may make a user open or close devices.
    for (size_t i = 0; i < devices_.size(); ++i) devices_[i]->news(told);
  }
  co_return news.items.size() == wire::kNewsItemsMax;
}

}  // namespace braid::bnbd::client
