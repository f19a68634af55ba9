#include "vhca/soft/tcp/complaint_box.h"

#include <utility>

namespace braid::vhca::soft::tcp {

namespace {

constexpr base::LimitedLog::Limits kLines{.burst = 10, .per_second = 10};

}  // namespace

void ComplaintBox::open(base::Reactor& control, base::Logger log) {
  log_.emplace(control, std::move(log), kLines);
  const std::lock_guard lock(mutex_);
  control_ = &control;
}

void ComplaintBox::close() {
  {
    const std::lock_guard lock(mutex_);
    control_ = nullptr;
  }
  log_.reset();
}

bool ComplaintBox::put(const std::string& ip, const std::string& line) {
  const std::lock_guard lock(mutex_);
  if (control_ == nullptr) return false;
  control_->post([self = shared_from_this(), ip, line] {
    if (self->log_) self->log_->of(ip).warning("{}", line);
  });
  return true;
}

}  // namespace braid::vhca::soft::tcp
