#include "bnbd/backend/loss_mark.h"

#include <xxhash.h>

#include <array>
#include <string>

namespace braid::bnbd {
namespace {

uint64_t this_boot(base::Host& host) {
  const std::string id = host.boot_id();
  return XXH3_64bits(id.data(), id.size());
}

}  // namespace

base::Result<uint64_t> incarnation_of(base::Host& host, const base::File& file) {
  const uint64_t boot = this_boot(host);
  base::Result<base::File::Mark> mark = file.mark();
  if (mark.code() == base::Errc::kNotSupported) return boot;
  if (!mark.ok()) return mark.error();
  if ((*mark)[0] != boot) return boot;
  return XXH3_64bits(mark->data(), sizeof(*mark));
}

base::Status mark_loss(base::Host& host, base::File& file, uint64_t number) {
  return file.set_mark({this_boot(host), number});
}

}  // namespace braid::bnbd
