// Queue: how a request comes out of its chunk and to the user. No allocation, no lock, no system
// call beyond what the device needs (a peer that breaks the protocol apart).
#include <fmt/format.h>

#include <algorithm>

#include "base/single_writer.h"
#include "trs/server/path.h"
#include "trs/server/queue.h"
#include "trs/server/server_impl.h"
#include "trs/server/session.h"
#include "trs/server/worker.h"

namespace braid::trs::server {

void Queue::received_imm(Connection& connection, uint32_t value, uint32_t) {
  received_.store(received_count() + 1, std::memory_order_relaxed);
  if (closing_) return;
  const Imm imm = decode_imm(value);
  switch (imm.type) {
    case ImmType::kRequest:
      place.client->share->asked = true;
      request_arrived(session_.codec().decode(imm.payload));
      return;
    case ImmType::kHeartbeat:
      if (connection.open() && room(1)) {
        connection.answer_heartbeat(encode_imm({ImmType::kHeartbeatAck, 0}));
      }
      connection.heard_heartbeat();
      return;
    case ImmType::kHeartbeatAck:
      connection.heard_heartbeat();
      return;
    case ImmType::kAnswer:
    case ImmType::kAnswerInvalidated:
    case ImmType::kNotice:
      break;
  }
  violation("immediate of an unknown type",
            fmt::format("immediate {:#010x} is none for a server", value));
}

const char* Queue::check_request(const RequestImm& imm) const {
  if (!open_) return "came before the session was open, or after it broke the protocol";
  if (imm.chunk >= session_.queue_depth()) return "names a chunk that does not exist";
  const std::optional<uint16_t> owner = session_.owner_of(imm.chunk);
  if (owner && *owner != cid_) return "came by a connection that does not own its chunk";
  if (session_.lends() && session_.is_admin(imm.chunk) != (cid_ == 0)) {
    return "came by a connection that may not use its chunk";
  }
  return nullptr;
}

/// From here on, until Request::give_back, no other thread touches the request. It may have been
/// another connection's.
const char* Queue::take_chunk(Request& request) {
  if (!request.lent) return nullptr;
  uint32_t holder = request.holder.load(std::memory_order_acquire);
  if (holder == (cid_ | Request::kBusy)) return nullptr;  // a path of it is lost
  if ((holder & Request::kBusy) != 0 ||
      !request.holder.compare_exchange_strong(holder, cid_ | Request::kBusy,
                                              std::memory_order_acq_rel)) {
    return "names a chunk whose request is still running at another connection";
  }
  if (holder != cid_) {
    request.slice = &session_.slice(cid_);
    request.reactor = &worker_.reactor();
  }
  return nullptr;
}

void Queue::request_arrived(RequestImm imm) {
  if (const char* const wrong = check_request(imm)) return refuse(imm, wrong);
  if (path_.guard() != ChunkGuard::kWindows) return take(imm);
  if (const char* const wrong = close_window(imm)) refuse(imm, wrong);
}

void Queue::take(RequestImm imm) {
  Request& request = session_.request_of(imm.chunk);
  const char* wrong = take_chunk(request);
  if (wrong == nullptr) {
    wrong = take_request(request, imm);
    if (wrong != nullptr && request.state == Request::State::kFree) request.give_back();
  }
  if (wrong != nullptr) refuse(imm, wrong);
}

void Queue::refuse(RequestImm imm, const char* wrong) {
  violation(wrong, fmt::format("request for chunk {}, message at {}: {}", imm.chunk,
                               imm.offset_bytes, wrong));
}

const char* Queue::take_request(Request& request, const RequestImm& imm) {
  const bool busy = request.state != Request::State::kFree;
  wire::ParsedRequest parsed;
  const char* const wrong =
      wire::parse_request(path_.landing(imm.chunk), imm.offset_bytes, session_.max_io_bytes(),
                          busy ? std::span<std::byte>(arriving_) : request.header, parsed);
  if (wrong != nullptr) return wrong;
  if (parsed.sequenced != session_.sequenced()) {
    return "has a number where none was agreed on, or none where it was";
  }
  if (parsed.sequenced) return take_sequenced(request, parsed);
  if (busy) return defer(request, imm);
  arrive(request, parsed);
  return nullptr;
}

/// Of a peer without numbers: it has given up the other path, and sends its request again. So it
/// has the one by which it came again before, if there is one: what came there never begins.
const char* Queue::defer(Request& request, const RequestImm& imm) {
  if (request.queue == this || request.deferred_to == this) {
    return "names a chunk whose request is still running";
  }
  for (Queue* const former : {request.queue, request.deferred_to}) {
    if (former == nullptr) continue;
    former->path_.post_home([&path = former->path_] {
      path.close("its client sends by another path what it had sent by this one");
    });
  }
  request.deferred_to = this;
  request.deferred_offset = imm.offset_bytes;
  return nullptr;
}

void Queue::resume(Request& request) {
  if (!closing_) request_arrived({request.index, request.deferred_offset});
}

const char* Queue::take_sequenced(Request& request, const wire::ParsedRequest& parsed) {
  const bool counts_anew = session_.counts_anew(parsed.epoch, request.epoch);
  if (parsed.epoch != request.epoch && !counts_anew && !mutant("epoch-unchecked") &&
      !mutant("late-request-taken")) {
    return "is of another epoch than its session";
  }
  if (!counts_anew && parsed.sequence == request.sequence) return take_again(request, parsed);
  if (request.state != Request::State::kFree) return "names a chunk whose request is still running";
  const bool in_sequence =
      parsed.sequence == wire::next_sequence(counts_anew ? 0 : request.sequence);
  if (!in_sequence && !mutant("sequence-unchecked") && !mutant("late-request-taken"))
    return "is out of sequence";
  arrive(request, parsed);
  return nullptr;
}

/// Of a guard that copies, what a write brought is copied before anything of it is looked at: now,
/// or in turn. Until all of it is here nothing else is known of the request: if its path is lost
/// before, it has never come.
void Queue::arrive(Request& request, const wire::ParsedRequest& parsed) {
  const bool copies = copies_data(request, parsed);
  request.landed = parsed.direction == Direction::kWrite && !copies;
  if (copies && !worker_.copies_bytes(parsed.data_bytes)) {
    request.state = Request::State::kArriving;
    request.arriving = parsed;
    request.copied_bytes = 0;
    return keep_long(request);
  }
  if (copies) copy(request.index, 0, parsed.data_bytes);
  arrived(request, parsed);
}

bool Queue::copies_data(const Request& request, const wire::ParsedRequest& parsed) {
  if (path_.guard() != ChunkGuard::kCopy || parsed.direction != Direction::kWrite) return false;
  const auto header = std::span(request.header).first(parsed.user_header_bytes);
  return !session_.server().user().moves_data(session_, worker_.reactor(), header) &&
         !mutant("copy-skipped");
}

void Queue::copy(uint32_t chunk, size_t from, size_t bytes) {
  const auto landed = path_.landing(chunk).subspan(from, bytes);
  std::copy(landed.begin(), landed.end(), session_.chunk(chunk).subspan(from).begin());
  base::add_shared(served_.copied_bytes, bytes);
}

void Queue::copy_part(Request& request) {
  const uint32_t left_bytes = request.arriving.data_bytes - request.copied_bytes;
  // Its session has broken the protocol, or it comes again by another path.
  const bool given_up = !open_ || request.deferred_to != nullptr;
  if (!given_up) {
    const uint32_t part_bytes = std::min(left_bytes, kPartBytes);
    copy(request.index, request.copied_bytes, part_bytes);
    request.copied_bytes += part_bytes;
    if (part_bytes < left_bytes) return;
  }
  let_long_go();
  if (given_up) return Slice::let_go(request);
  arrived(request, request.arriving);
}

void Queue::arrived(Request& request, const wire::ParsedRequest& parsed) {
  if (parsed.sequenced) {
    const bool again = parsed.sequence == request.sequence;
    request.follows = request.sequence != 0 && !again && parsed.epoch == request.epoch &&
                      parsed.epoch == session_.epoch();
    request.epoch = parsed.epoch;
    request.sequence = parsed.sequence;
    request.kept = false;
  }
  begin(request, parsed);
}

/// What was sent by a path that is lost, sent again: it is not done twice.
const char* Queue::take_again(Request& request, const wire::ParsedRequest& parsed) {
  const bool same =
      parsed.direction == request.direction &&
      (parsed.direction == Direction::kWrite || parsed.data_bytes == request.data.size());
  if (!same) return "comes again as another one";
  if (request.cid != cid_) return "comes again by another connection";
  const bool busy = request.state != Request::State::kFree;
  if (busy && request.queue != nullptr) return "comes again while its path is up";
  request.target = parsed.target;
  if (busy) {
    request.queue = this;
    running_.push_back(request);
  } else if (is_done_again(request) || mutant("done-twice")) {
    arrive(request, parsed);
  } else {
    answer(request);
  }
  return nullptr;
}

/// What was read is not there any more, or may have changed. Of a former incarnation it is known
/// what went well, and nothing of its connections.
bool Queue::is_done_again(const Request& request) {
  if (!request.kept) return request.source.mr != nullptr;
  return request.direction == Direction::kRead || request.status != base::Errc::kOk ||
         request.repeats;
}

bool Queue::mutant(const char* name) const {
  return worker_.reactor().host().mutant(name);
}

void Queue::begin(Request& request, const wire::ParsedRequest& parsed) {
  request.target = parsed.target;
  request.invalidate = parsed.invalidate;
  request.direction = parsed.direction;
  request.user_header = std::span(request.header).first(parsed.user_header_bytes);
  request.data = data_of(request, parsed);
  request.has_words = parsed.has_words;
  if (parsed.has_words) request.words = parsed.words;
  give_to_user(request);
}

void Queue::give_to_user(Request& request) {
  request.state = Request::State::kAtUser;
  request.queue = this;
  request.cid = cid_;
  running_.push_back(request);
  request.connection = number();
  request.repeats = false;
  request.context = nullptr;
  request.has_answer_words = false;
  request.slice->begin(request);
}

/// With a guard it is where no key reaches it: a write whose window is closed lies there already.
std::span<std::byte> Queue::data_of(const Request& request, const wire::ParsedRequest& parsed) {
  const auto chunk = request.landed ? path_.landing(request.index) : session_.chunk(request.index);
  return chunk.first(parsed.data_bytes);
}

}  // namespace braid::trs::server
