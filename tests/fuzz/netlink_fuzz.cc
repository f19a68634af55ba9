// Any bytes as an answer of the kernel's netlink.
#include <cstddef>
#include <cstdint>
#include <span>

#include "bnbd/frontend/netlink.h"
#include "tests/fuzz/reached.h"

namespace {

braid::fuzz::Verdicts verdicts("an answer of netlink");

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  const auto bytes = std::as_bytes(std::span(data, size_bytes));
  const auto answer = braid::bnbd::parse_netlink(bytes, 1);
  if (verdicts.count(answer.ok()) && answer.value().attributes) {
    for (uint16_t type = 0; type < 12; ++type) {
      (void)braid::bnbd::find_attribute(*answer.value().attributes, type);
    }
  }
  return 0;
}
