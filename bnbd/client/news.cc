// News: what the server tells of open devices that no request would show. Asked for, as RTRS has no
// message from the server that would not answer one (docs/bnbd-wire.md, "News").
#include <algorithm>
#include <array>

#include "bnbd/client/device_impl.h"
#include "bnbd/client/session_impl.h"

namespace braid::bnbd::client {

using base::Errc;
using base::Result;

void SessionImpl::ask_news_later() {
  if (!limits().braid_peer || options_.news_interval_ns == base::kNever) return;
  home_.schedule_after(news_timer_, options_.news_interval_ns);
}

void SessionImpl::news_due(base::Timer& timer) {
  auto& self = *static_cast<SessionImpl*>(timer.context);
  if (self.closing_) return;
  self.ask_news_later();
  const bool asking = self.news_task_ && !self.news_task_.done();
  const bool any = std::any_of(self.devices_.begin(), self.devices_.end(),
                               [](const DeviceImpl* device) { return device->open_at_server(); });
  if (asking || !self.path_up_ || !any) return;
  self.news_task_ = self.ask_news();
  self.news_task_.start();
}

base::Task<void> SessionImpl::ask_news() {
  for (bool more = true; more;) {
    auto told = co_await ask_news_once();
    if (!told.ok()) {
      // Of a path that is lost others speak. The same question comes again.
      if (path_up_) log_.warning("no news of {}: {}", server_text(), told.error().message());
      co_return;
    }
    more = *told;
  }
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
  news_seen_ = news.newest;
  for (const wire::DeviceNews& told : news.items) {
    // By index: what is told may make a user open or close devices.
    for (size_t i = 0; i < devices_.size(); ++i) devices_[i]->news(told);
  }
  co_return news.items.size() == wire::kNewsItemsMax;
}

}  // namespace braid::bnbd::client
