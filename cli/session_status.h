// What a node tells of sessions: those of its server's clients, and what does not hold in them or
// in its own ones when the other end is not Braid (private to cli/).
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "bnbd/server.h"
#include "trs/client.h"

namespace braid::cli {

/// docs/kernel-peers.md: sentences; none for a Braid server. Of a session that is mapped from.
nlohmann::json not_held_by_server(const trs::SessionLimits& limits, bool guard_reads);
/// The same of a client; `guarded`: what it writes is out of its reach before it is looked at.
nlohmann::json not_held_by_client(bool braid_peer, bool guarded);

/// How news (other sizes, closed devices) come to the client: "pushed", "asked for" each second, or
/// "none" as one end is Linux's.
const char* news_text(bool braid_peer, bool notices);

nlohmann::json block_statistics(const bnbd::BlockStatistics& statistics);
/// One client of the node's server.
nlohmann::json client_session(const bnbd::SessionStatus& session);

}  // namespace braid::cli
