// KeptAnswers: what the server has answered in sessions that have ended, so that a client who comes
// back and sends again what was under way has nothing done twice (docs/trs.md, "Losing the last
// path").
//
// Of each chunk the newest request's number and how it ended; a few dozen bytes. One entry for each
// session that may come back: when it does, its next one takes the entry over. Nobody knows who
// will not: so the oldest goes when there is no room, but first that of a client who has more than
// one client may have.
//
// Thread: the home reactor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "trs/client.h"
#include "trs/wire.h"

namespace braid::trs::server {

/// Of one chunk.
struct KeptAnswer {
  uint32_t chunk = 0;
  uint16_t cid = 0;
  uint32_t epoch = 0, sequence = 0;
  Direction direction = Direction::kRead;
  uint32_t data_bytes = 0;
  base::Errc status = base::Errc::kOk;
  bool repeats = false;
  bool has_words = false;
  std::array<uint64_t, 2> words{};
};

/// Of one session.
struct KeptSession {
  wire::Uuid paths_uuid;
  std::string client;  // ServerSession::client(): whose entries are counted together
  std::string key;     // ServerSession::key_name()
  uint16_t cid_num = 0;
  uint32_t first_epoch = 0;  // of those that follow each other
  uint32_t epoch = 0;
  std::vector<KeptAnswer> answers;  // of chunks that have been used
};

class KeptAnswers {
 public:
  struct Room {
    size_t sessions_max = 1;
    size_t of_one_max = 1;  // of one client
  };
  explicit KeptAnswers(const Room& room) : room_(room) {}
  void keep(KeptSession session);
  /// Those of the last session of this name, if it had the same key and as many connections.
  std::optional<KeptSession> take(const wire::Uuid& paths_uuid, const std::string& key,
                                  uint16_t cid_num);
  size_t size() const { return sessions_.size(); }

 private:
  void make_room(const std::string& client);

  const Room room_;
  std::deque<KeptSession> sessions_;  // the newest last
};

}  // namespace braid::trs::server
