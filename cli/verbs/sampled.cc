#include "cli/verbs/sampled.h"

#include <sys/eventfd.h>

#include <system_error>

namespace braid::cli {

using base::Result;

LaterSample::LaterSample(const Context& context, int patience_ms)
    : context_(context),
      patience_ms_(patience_ms),
      done_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  BRAID_ASSERT(done_.get() >= 0);  // fails for want of descriptors only
}

LaterSample::~LaterSample() {
  if (thread_.joinable()) thread_.join();
}

void LaterSample::begin() {
  if (under_way_) return;
  under_way_ = true;
  try {
    thread_ = std::thread([this] { ask(); });
  } catch (const std::system_error&) {  // no thread: then whoever asks waits
    ask();
  }
}

void LaterSample::ask() {
  result_ = sample_nodes(context_, patience_ms_);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(done_.get(), &one, sizeof one);
}

std::optional<Result<SampledNodes>> LaterSample::take() {
  uint64_t times = 0;
  if (::read(done_.get(), &times, sizeof times) != sizeof times) return std::nullopt;
  if (thread_.joinable()) thread_.join();
  under_way_ = false;
  std::optional<Result<SampledNodes>> result = std::move(result_);
  result_.reset();
  return result;
}

}  // namespace braid::cli
