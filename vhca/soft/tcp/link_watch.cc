#include "vhca/soft/tcp/link_watch.h"

#include <algorithm>

#include "base/log.h"

namespace braid::vhca::soft::tcp {

void PortState::on_change(std::function<void(bool up)> callback) {
  const std::lock_guard guard(mutex_);
  on_change_ = std::move(callback);
}

void PortState::set(bool& what, bool up) {
  const std::lock_guard guard(mutex_);
  const bool was = port_ && link_;
  what = up;
  const bool is = port_ && link_;
  if (was != is && on_change_ != nullptr) on_change_(is);
}

std::unique_ptr<LinkWatch> LinkWatch::create(base::Host& host, base::Reactor& reactor,
                                             std::string ip, PortState& port) {
  auto news = host.watch_links();
  if (!news.ok()) {
    if (news.code() != base::Errc::kNotSupported) {
      reactor.log().warning("the port {} tells no events of its link: {}", ip,
                            news.error().message());
    }
    return nullptr;
  }
  return std::unique_ptr<LinkWatch>(
      new LinkWatch(host, reactor, std::move(ip), port, std::move(*news)));
}

LinkWatch::LinkWatch(base::Host& host, base::Reactor& reactor, std::string ip, PortState& port,
                     std::unique_ptr<base::LinkNews> news)
    : host_(host),
      reactor_(reactor),
      ip_(std::move(ip)),
      port_(port),
      news_(std::move(news)),
      next_look_([](base::Timer& timer) { static_cast<LinkWatch*>(timer.context)->look(); }, this) {
  watch_.context = this;
  watch_.ready = [](base::Watch& watch) { static_cast<LinkWatch*>(watch.context)->hear(); };
  reactor_.io().watch_readable(news_->handle(), watch_);
  look();  // behind the watching: no change falls between
}

LinkWatch::~LinkWatch() {
  reactor_.io().unwatch(watch_);
}

void LinkWatch::hear() {
  if (!news_->take()) return;
  if (host_.now_ns() >= rests_until_ns_) return look();
  if (!next_look_.pending() || next_look_.deadline_ns() > rests_until_ns_) {
    reactor_.schedule(next_look_, rests_until_ns_);
  }
}

void LinkWatch::look() {
  reactor_.cancel(next_look_);
  const uint64_t began_ns = host_.now_ns();
  const std::optional<bool> link = host_.has_link(ip_);
  const uint64_t now_ns = host_.now_ns();
  rests_until_ns_ = now_ns + std::max(kLooksApartNs, (now_ns - began_ns) * kRestForLook);
  if (link.has_value()) return port_.set_link(*link);
  // What is not known changes nothing.
  reactor_.schedule(next_look_, std::max(rests_until_ns_, now_ns + kLookAgainNs));
}

}  // namespace braid::vhca::soft::tcp
