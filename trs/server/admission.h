// Who may connect: the decision about one connect request, as a pure function.
//
// Rules (docs/trs.md): a session nobody knows begins with first_conn only, so that a connect
// request that was delayed cannot found a second one; a client that comes back replaces its former
// path, whose requests must have ended before the new one is opened; further connections join the
// path that connection 0 began.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trs/path_state.h"
#include "trs/wire.h"

namespace braid::trs::server {

/// What the server knows of the newest path of a session.
struct KnownPath {
  wire::Uuid sess_uuid;
  uint16_t recon_cnt = 0;
  uint16_t cid_num = 0;
  ServerPathState state = ServerPathState::kConnecting;
  bool cid_taken = false;  // the connection asked for exists already
  size_t paths = 1;        // of the client, those that have not ended yet included
};

/// The former path, whose disk may hang; an attempt that was given up; the next.
inline constexpr size_t kPathsMax = 3;

struct Admission {
  enum class Kind : uint8_t { kNew, kReplace, kJoin, kReject } kind = Kind::kReject;
  int sys_errno = 0;  // of a reject
};

/// `known` is null if the session is not known. `room` is false when there are sessions_max.
Admission admit(const wire::ConnReq& request, const KnownPath* known, bool room);

}  // namespace braid::trs::server
