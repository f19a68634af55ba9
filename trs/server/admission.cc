#include "trs/server/admission.h"

#include <cerrno>

namespace braid::trs::server {
namespace {

constexpr Admission reject(int sys_errno) {
  return {Admission::Kind::kReject, sys_errno};
}

/// Serial numbers: they wrap.
constexpr bool newer(uint16_t a, uint16_t b) {
  return static_cast<int16_t>(static_cast<uint16_t>(a - b)) > 0;
}

Admission admit_first(const wire::ConnReq& request, const KnownPath* known, bool room) {
  if (known == nullptr) {
    if ((request.flags & wire::kFirstConn) == 0) return reject(ENXIO);
    return room ? Admission{Admission::Kind::kNew} : reject(ENOMEM);
  }
  const bool live =
      known->state == ServerPathState::kConnecting || known->state == ServerPathState::kConnected;
  if (live && known->sess_uuid != request.sess_uuid) return reject(EOPNOTSUPP);
  if (live && !newer(request.recon_cnt, known->recon_cnt)) return reject(ECONNRESET);
  // A reactor that hangs ends no path: one client must not use up the server's sessions by trying.
  if (known->paths >= kPathsMax) return reject(EBUSY);
  return {Admission::Kind::kReplace};
}

}  // namespace

Admission admit(const wire::ConnReq& request, const KnownPath* known, bool room) {
  if (request.cid == 0) return admit_first(request, known, room);
  const bool joins = known != nullptr && known->state == ServerPathState::kConnecting &&
                     known->sess_uuid == request.sess_uuid &&
                     known->recon_cnt == request.recon_cnt && known->cid_num == request.cid_num &&
                     !known->cid_taken;
  return joins ? Admission{Admission::Kind::kJoin} : reject(ECONNRESET);
}

}  // namespace braid::trs::server
