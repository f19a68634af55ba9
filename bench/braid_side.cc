#include "bench/braid_side.h"

namespace braid::bench {
namespace {

base::LinuxHostOptions host_options(uint64_t poll_budget_ns) {
  base::LinuxHostOptions options;
  options.log_name = "braid-bench";
  options.log_level = base::LogLevel::kWarning;
  options.sleeps_at_once = poll_budget_ns == 0;
  return options;
}

}  // namespace

BraidSide::BraidSide(uint64_t poll_budget_ns)
    : host(must(base::create_linux_host(host_options(poll_budget_ns)))) {
  const base::Reactor::Options options{.name = "bench", .poll_budget_ns = poll_budget_ns};
  reactor = must(base::Reactor::create(*host, options));
}

}  // namespace braid::bench
