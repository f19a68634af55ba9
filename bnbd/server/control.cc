// Control requests: SESS_INFO, OPEN, CLOSE, NEWS.
#include <algorithm>
#include <cstring>

#include "bnbd/server/server_impl.h"

namespace braid::bnbd::server {

using base::Errc;
using base::make_error;
using base::Result;

namespace {

// A session has few admin permits, so no control request may keep one for long while it waits for a
// disk. A Braid client asks again; others take the answer as final.
constexpr uint64_t kOpenPatienceNs = 250 * base::kMillisecond;
constexpr uint64_t kForeignOpenPatienceNs = 3 * base::kSecond;
constexpr uint64_t kClosePatienceNs = 250 * base::kMillisecond;

base::Status check_room(const Session& session) {
  if (session.devices().size() < kDevicesMax) return {};
  return make_error(Errc::kNoMemory, "the session has {} devices open, the most there may be",
                    kDevicesMax);
}

base::Task<bool> idle(SessionDevice& device) {
  while (device.in_flight > 0) co_await device.idle.wait();
  co_return true;
}

/// Puts an answer in the data of a read, and zeroes behind it: chunks hold older bytes.
template <typename T>
void fill_answer(std::span<std::byte> data, const T& message) {
  std::memcpy(data.data(), &message, sizeof(message));
  std::memset(data.data() + sizeof(message), 0, data.size() - sizeof(message));
}

/// Whether the slot's request can take an answer of this size.
bool can_answer(const RequestSlot& slot, size_t size_bytes) {
  return slot.request->direction == trs::Direction::kRead &&
         slot.request->data.size() >= size_bytes;
}

}  // namespace

void ServerImpl::session_info(RequestSlot& slot) {
  auto info = wire::parse_session_info(slot.request->user_header, wire::MessageType::kSessionInfo);
  if (!info.ok()) return refuse(slot, Errc::kInvalid, info.error().message());
  if (!can_answer(slot, sizeof(wire::SessionInfo))) {
    return refuse(slot, Errc::kInvalid, "session info asks for an answer of less than 36 bytes");
  }
  Session& session = slot.pool->session;
  session.version = std::min(info->version, wire::kVersionMajor);
  wire::SessionInfo answer;
  answer.header.type = static_cast<uint16_t>(wire::MessageType::kSessionInfoAnswer);
  answer.version = session.version;
  fill_answer(slot.request->data, answer);
  finish(slot, Errc::kOk);
}

base::Task<void> ServerImpl::open(RequestSlot& slot) {
  auto request = wire::parse_open(slot.request->user_header);
  if (!request.ok()) {
    refuse(slot, Errc::kInvalid, request.error().message());
    co_return;
  }
  if (!can_answer(slot, sizeof(wire::OpenAnswer))) {
    refuse(slot, Errc::kInvalid, "open asks for an answer of less than 56 bytes");
    co_return;
  }
  auto device = co_await open_device(slot.pool->session, *request);
  if (!device.ok()) {
    refuse_open(slot, device.error());
  } else {
    answer_open(slot, **device);
  }
}

base::Task<Result<SessionDevice*>> ServerImpl::open_device(Session& session,
                                                           wire::OpenRequest request) {
  BRAID_CO_CHECK(check_room(session));
  BRAID_CO_TRY(const std::string name, exports_.name_for(session.owner(), request.name));
  Opening opening(session.openings(), name);
  auto found = co_await find_export(session, request, name);
  // Whatever became of it: there may be nobody to be refused any more who was in its way, and the
  // operator's word was for this session, whatever others of its name have been allowed since.
  if (opening.taken()) {
    if (found.ok()) exports_.release(**found);
    co_return ExportTable::revoked(name);
  }
  if (found.ok()) co_return add_device(session, request, **found);
  if (found.code() == Errc::kTimedOut && session.braid_peer()) opening.asks_again();
  co_return found.error();
}

/// The export that the session may hold in this mode. The caller then holds or releases it.
base::Task<Result<Export*>> ServerImpl::find_export(Session& session, wire::OpenRequest request,
                                                    std::string name) {
  const uint64_t patience_ns = session.braid_peer() ? kOpenPatienceNs : kForeignOpenPatienceNs;
  auto found = co_await exports_.open(name, patience_ns);
  base::Status lent;
  if (found.ok()) {
    ++(*found)->waiters;
    lent = co_await lend_memory(session, **found, patience_ns);
  }
  co_await door_.turn(session.door());
  // In a refusal some codes speak of the device's life, and must not come from a disk.
  if (!found.ok()) co_return base::Error(disk_status(found.code()), found.error().message());
  Export* const exported = *found;
  const bool writes = request.mode != wire::AccessMode::kReadOnly;
  base::Status status = lent;
  if (status.ok() && request.again && !request.remap)
    status = exports_.check_revoked(*exported, session.name());
  if (status.ok() && writes && session.find(*exported) == nullptr) {
    status = co_await exports_.begin_writing(*exported, request, patience_ns, session.door());
  }
  --exported->waiters;
  // What this session has got meanwhile is no refusal: it is given once more.
  if (session.find(*exported) != nullptr) co_return exported;
  if (home_.host().mutant("second-writer") && status.code() == Errc::kBusy) status = {};
  if (status.ok()) co_return exported;
  exports_.release(*exported);
  co_return status.error();
}

Result<SessionDevice*> ServerImpl::add_device(Session& session, const wire::OpenRequest& request,
                                              Export& exported) {
  if (SessionDevice* held = session.find(exported)) {
    if (held->mode == request.mode) return held;  // RNBD: opening again gives the same id
    return make_error(Errc::kExists, "the session has '{}' open already, in mode {}", exported.name,
                      wire::to_string(held->mode));
  }
  const base::Status status = check_room(session);  // others were opened meanwhile
  if (!status.ok()) {
    exports_.release(exported);
    return status.error();
  }
  SessionDevice& device = session.add(exported, request.mode, home_);
  device.lends = exported.lendable && session.transport().uses_memory(*exported.lendable);
  if (request.mode != wire::AccessMode::kReadOnly) exports_.take_tenure(device, request.tenure);
  exports_.forgive(exported, session.name());
  ++statistics_.opened;
  comings_.of(session.client())
      .info("session '{}' from {} opened '{}' in mode {}", session.name(), session.peer(),
            exported.name, wire::to_string(request.mode));
  return &device;
}

/// Sees to it that reads of the session are answered out of the memory that the device lends. Where
/// that cannot be they are copied: kTimedOut only while it is not known yet.
base::Task<base::Status> ServerImpl::lend_memory(Session& session, Export& exported,
                                                 uint64_t patience_ns) {
  if (!exported.lendable) co_return base::ok_status();
  base::Task<base::Status> use = session.transport().use_memory(*exported.lendable);
  const std::optional<base::Status> used = co_await home_.with_timeout(std::move(use), patience_ns);
  if (!used) {
    co_return make_error(Errc::kTimedOut,
                         "the memory of '{}' is still being registered for the session after {} ms",
                         exported.name, patience_ns / base::kMillisecond);
  }
  if (!used->ok()) {
    comings_.of(session.client())
        .warning("session '{}' from {}: reads of '{}' are copied, not sent from its memory: {}",
                 session.name(), session.peer(), exported.name, used->error().message());
  }
  co_return base::ok_status();
}

void ServerImpl::answer_open(RequestSlot& slot, const SessionDevice& device) {
  const BlockInfo& info = device.exported.device->info();
  const Session& session = slot.pool->session;
  wire::OpenedDevice opened;
  opened.device_id = device.id;
  opened.size_bytes = info.size_bytes;
  opened.max_io_bytes = std::min(info.max_io_bytes, session.transport_max_io());
  // An operation's length has 32 bits on the wire.
  const uint64_t range_max =
      uint64_t{UINT32_MAX} / info.logical_block_bytes * info.logical_block_bytes;
  opened.max_discard_bytes = std::min(info.max_discard_bytes, range_max);
  // To others than Braid this field may mean "write same", which is not done here.
  opened.max_write_zeroes_bytes =
      session.braid_peer() ? std::min(info.max_write_zeroes_bytes, range_max) : 0;
  // Its length is told as that of a discard.
  if (info.max_secure_erase_bytes >= opened.max_discard_bytes)
    opened.max_secure_erase_bytes = opened.max_discard_bytes;
  opened.discard_granularity_bytes = info.discard_granularity_bytes;
  opened.discard_alignment_bytes = info.discard_alignment_bytes;
  opened.physical_block_bytes = info.physical_block_bytes;
  opened.logical_block_bytes = info.logical_block_bytes;
  opened.force_unit_access = info.fua;
  opened.write_cache = info.write_cache;
  opened.identity = info.identity;
  opened.identity_hash = wire::hash_identity(info.identity);
  opened.incarnation = exports_.incarnation(device.exported);
  opened.tenure = device.tenure;

  const std::span<std::byte> data = slot.request->data;
  if (session.braid_peer() && data.size() >= sizeof(wire::ExtendedOpenAnswer)) {
    wire::ExtendedOpenAnswer answer;
    answer.answer = wire::make_open_answer(opened);
    answer.extension = wire::make_extension(opened);
    fill_answer(data, answer);
  } else {
    fill_answer(data, wire::make_open_answer(opened));
  }
  finish(slot, Errc::kOk);
}

/// Between Braid peers the reason travels along; others get the errno alone.
void ServerImpl::refuse_open(RequestSlot& slot, const base::Error& why) {
  ++statistics_.opens_refused;
  const Errc code = why.code();
  const Session& session = slot.pool->session;
  refusals_.of(session.client())
      .warning("session '{}' from {}: open beneath '{}' refused: {}", session.name(),
               session.peer(), options_.root, why.message());
  const std::span<std::byte> data = slot.request->data;
  if (session.braid_peer() && data.size() >= sizeof(wire::ExtendedOpenAnswer)) {
    const int status = code == Errc::kCanceled ? static_cast<int>(wire::kStatusRevoked)
                                               : base::errno_from_errc(code);
    fill_answer(data, wire::make_refusal(status, why.message()));
    finish(slot, Errc::kOk);
  } else {
    finish(slot, code);
  }
}

base::Task<void> ServerImpl::close(RequestSlot& slot) {
  auto request = wire::parse_close(slot.request->user_header);
  if (!request.ok()) {
    refuse(slot, Errc::kInvalid, request.error().message());
    co_return;
  }
  Session& session = slot.pool->session;
  SessionDevice* const found = session.find(request->device_id);
  if (found != nullptr) {
    // Out of the table first: requests that come from now on are for an unknown device.
    session.retire(*found);
    comings_.of(session.client())
        .info("session '{}' from {} closed '{}'", session.name(), session.peer(),
              found->exported.name);
    if (found->in_flight > 0) {
      base::Task<bool> last_request = idle(*found);
      co_await home_.with_timeout(std::move(last_request), kClosePatienceNs);
      co_await door_.turn(session.door());
    }
    end_retired(session, *found);
  }
  finish(slot, Errc::kOk);  // closing twice is no error
}

/// Until its disk has answered it holds the export, and nobody else may write.
void ServerImpl::end_retired(Session& session, SessionDevice& device) {
  if (device.in_flight == 0) {
    release(session.take_retired(device));
  } else {
    device.left = true;
  }
}

void ServerImpl::session_news(RequestSlot& slot) {
  auto seen = wire::parse_news(slot.request->user_header);
  if (!seen.ok()) return refuse(slot, Errc::kInvalid, seen.error().message());
  if (!can_answer(slot, wire::kNewsBytesMax)) {
    return refuse(slot, Errc::kInvalid, "news in less space than they may need");
  }
  Session& session = slot.pool->session;
  const std::vector<std::byte> answer = wire::make_news_answer(session.news_since(*seen));
  session.transport().clear_notice();  // of an answer that is full the client asks on
  const std::span<std::byte> data = slot.request->data;
  std::copy(answer.begin(), answer.end(), data.begin());
  std::fill(data.begin() + static_cast<ptrdiff_t>(answer.size()), data.end(), std::byte{0});
  finish(slot, Errc::kOk);
}

}  // namespace braid::bnbd::server
