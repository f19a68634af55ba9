// Who may connect: the decision about one connect request, as a pure function.
//
// Rules (docs/trs.md, docs/trs-multipath.md): a session nobody knows begins with first_conn only,
// so that a connect request that was delayed cannot found a second one; a Braid client says which
// incarnation a path joins, or that it begins a new one, whose requests wait until those of the
// former have ended; further connections join the path that connection 0 began.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "trs/path_state.h"
#include "trs/wire.h"

namespace braid::trs::server {

/// What the server knows of the newest path of the name that a connect request gives.
struct KnownPath {
  uint16_t recon_cnt = 0;
  uint16_t cid_num = 0;
  ServerPathState state = ServerPathState::kConnecting;
  bool cid_taken = false;  // the connection asked for exists already
};

/// What it knows of the newest incarnation of the session.
struct KnownSession {
  bool live = false;  // not ending
  bool open = false;  // live, and its first path was up
  bool sequenced = false;
  uint32_t epoch = 0;      // the bits that a connect request carries
  uint16_t recon_cnt = 0;  // of its newest path; a Braid client has one counter for all paths
  uint16_t cid_num = 0;
  size_t paths = 0;        // those that end included
  size_t lives = 1;        // incarnations of the client, those that end included
  size_t connections = 0;  // of all of them, promised ones included
  std::optional<KnownPath> path;
};

/// The former life, whose disk may hang; an attempt that was given up; the next.
inline constexpr size_t kLivesMax = 3;
/// Of one session at a time.
inline constexpr size_t kPathsMax = 32;

struct Admission {
  enum class Kind : uint8_t {
    kNew,      // a session's first path
    kReplace,  // the same, and the client's former life ends
    kPath,     // a path of a session that lives
    kJoin,     // a further connection of a path
    kReject
  } kind = Kind::kReject;
  int sys_errno = 0;  // of a reject
};

/// What the server can still take.
struct Room {
  bool session = true;             // one more
  bool session_of_address = true;  // one more from where it comes
  size_t connections = SIZE_MAX;   // of all clients
  size_t of_address = SIZE_MAX;    // from where it comes
  size_t of_client = SIZE_MAX;     // that one client may have
};

/// `known` is null if the session is not known.
Admission admit(const wire::ConnReq& request, const KnownSession* known, const Room& room);

}  // namespace braid::trs::server
