// ExportTable: flushes that fail, who has been told of them, and who is told by the incarnation.
#include <xxhash.h>

#include <array>
#include <span>

#include "bnbd/server/export.h"
#include "bnbd/server/session.h"

namespace braid::bnbd::server {

using base::Errc;

Errc ExportTable::settle_flush(const RequestSlot& slot, Errc status) {
  SessionDevice& holder = *slot.device;
  const BlockRequest& block = slot.block;
  // Nothing was done, and nothing asked of pages. A flush itself has nothing that could be refused
  // so.
  const bool refused = status == Errc::kOutOfRange || status == Errc::kInvalid;
  if (status == Errc::kNotSupported || (refused && block.op != BlockOp::kFlush)) return status;
  uint64_t& failed = *holder.exported.flushes_failed;
  const uint64_t connection = slot.request->connection;
  // A durable write speaks of its own data, well or not: who flushes is still to be told of the
  // others'.
  const bool of_others = block.op == BlockOp::kFlush || block.preflush;
  if (status != Errc::kOk) {
    ++failed;
  } else if (slot.flushes_failed != failed ||
             (of_others && !holder.told.may_vouch(failed, connection))) {
    status = Errc::kIo;
  }
  if (of_others && status != Errc::kOk) {
    holder.told.tell(failed, connection, slot.request);
    holder.session.expect_answer_seen();
  }
  // It is good behind what this connection has told. Another may have told nothing.
  const bool good = block.op == BlockOp::kFlush && status == Errc::kOk;
  slot.request->repeats = good && !holder.told.knows(failed);
  return status;
}

uint64_t ExportTable::incarnation(const Export& of) {
  const uint64_t own = of.device->info().incarnation;
  if (*of.flushes_failed == 0) return own;
  while (process_ == 0) reactor_.host().random(std::as_writable_bytes(std::span(&process_, 1)));
  const std::array<uint64_t, 3> parts = {own, process_, *of.flushes_failed};
  return XXH3_64bits(parts.data(), sizeof(parts));
}

}  // namespace braid::bnbd::server
