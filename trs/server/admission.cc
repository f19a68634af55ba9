#include "trs/server/admission.h"

#include <cerrno>

namespace braid::trs::server {
namespace {

using Kind = Admission::Kind;

constexpr Admission reject(int sys_errno) {
  return {Kind::kReject, sys_errno};
}

/// Serial numbers: they wrap.
constexpr bool newer(uint16_t a, uint16_t b) {
  return static_cast<int16_t>(static_cast<uint16_t>(a - b)) > 0;
}

bool is_live(const KnownPath& path) {
  return path.state == ServerPathState::kConnecting || path.state == ServerPathState::kConnected;
}

/// A further path of a session that is open, or one that comes back to it.
Admission admit_path(const wire::ConnReq& request, const KnownSession& known) {
  const bool late =
      known.path && is_live(*known.path) && !newer(request.recon_cnt, known.path->recon_cnt);
  if (late || request.cid_num != known.cid_num) return reject(ECONNRESET);
  return known.paths < kPathsMax ? Admission{Kind::kPath} : reject(EBUSY);
}

/// The client has lost all it had.
Admission admit_life(const wire::ConnReq& request, const KnownSession& known) {
  const uint16_t last = known.sequenced || !known.path ? known.recon_cnt : known.path->recon_cnt;
  if (known.live && !newer(request.recon_cnt, last)) return reject(ECONNRESET);
  // A reactor that hangs ends no path: one client must not use up the server's sessions by trying.
  if (known.lives >= kLivesMax) return reject(EBUSY);
  return {Kind::kReplace};
}

Admission admit_first(const wire::ConnReq& request, const KnownSession* known, const Room& room) {
  const uint32_t joins = wire::joined_epoch(request);
  if (known == nullptr) {
    if (joins != 0 || (request.flags & wire::kFirstConn) == 0) return reject(ENXIO);
    if (!room.session) return reject(ENOMEM);
    return room.session_of_address ? Admission{Kind::kNew} : reject(EDQUOT);
  }
  if (joins != 0) {
    const bool there = known->open && known->sequenced && known->epoch == joins;
    return there ? admit_path(request, *known) : reject(ENXIO);
  }
  // One that knows of no incarnations: another path is one more of this session, the same path
  // comes back because it was the only one.
  if (!known->sequenced && known->open && (!known->path || known->paths > 1)) {
    return admit_path(request, *known);
  }
  return admit_life(request, *known);
}

}  // namespace

Admission admit(const wire::ConnReq& request, const KnownSession* known, const Room& room) {
  if (request.cid == 0) {
    const Admission admission = admit_first(request, known, room);
    const size_t has = known != nullptr ? known->connections : 0;
    if (admission.kind == Kind::kReject) return admission;
    const uint16_t more = request.cid_num;
    if (more > room.connections || has + more > room.of_client) return reject(ENOMEM);
    return more <= room.of_address ? admission : reject(EDQUOT);
  }
  const bool joins = known != nullptr && known->path &&
                     known->path->state == ServerPathState::kConnecting &&
                     known->path->recon_cnt == request.recon_cnt &&
                     known->path->cid_num == request.cid_num && !known->path->cid_taken;
  return joins ? Admission{Kind::kJoin} : reject(ECONNRESET);
}

}  // namespace braid::trs::server
