// What a child process that runs Braid needs: a real host and a reactor on it.
//
// In a child only (Process::call): the parent forks, and a library that has threads must not be
// forked.
#pragma once

#include <memory>
#include <stdexcept>

#include "base/linux_host.h"
#include "base/reactor.h"

namespace braid::bench {

/// The value, or an exception with the error's sentence: Process::call sends it to the parent.
template <typename T>
T must(base::Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().message());
  return std::move(result).value();
}
inline void must(const base::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.error().message());
}
inline void must(base::Errc status, const char* what) {
  if (status != base::Errc::kOk) {
    throw std::runtime_error(fmt::format("{}: {}", what, base::to_string(status)));
  }
}

struct BraidSide {
  explicit BraidSide(uint64_t poll_budget_ns = base::Reactor::Options().poll_budget_ns);
  std::unique_ptr<base::Host> host;
  std::unique_ptr<base::Reactor> reactor;
};

}  // namespace braid::bench
