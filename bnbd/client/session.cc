// The session's life and its control messages.
#include <algorithm>
#include <array>
#include <cstring>

#include "bnbd/client/device_impl.h"
#include "bnbd/client/session_impl.h"

namespace braid::bnbd {

using base::Errc;
using base::make_error;
using base::Result;

base::Task<Result<std::unique_ptr<RemoteSession>>> RemoteSession::open(
    vhca::Device& device, RemoteSessionOptions options) {
  if (options.transport.reactors.empty()) {
    co_return make_error(Errc::kInvalid, "a remote session on no reactor: at least 1 is right");
  }
  auto session = std::make_unique<client::SessionImpl>(device, std::move(options));
  BRAID_CO_CHECK(co_await session->start());
  co_return std::unique_ptr<RemoteSession>(std::move(session));
}

std::string_view to_string(RemoteState state) {
  switch (state) {
    case RemoteState::kOpen:
      return "open";
    case RemoteState::kPathDown:
      return "path-down";
    case RemoteState::kUnavailable:
      return "unavailable";
    case RemoteState::kReplaced:
      return "replaced";
    case RemoteState::kSuperseded:
      return "superseded";
    case RemoteState::kRevoked:
      return "revoked";
    case RemoteState::kLost:
      return "lost";
    case RemoteState::kClosed:
      return "closed";
  }
  return "?";
}

namespace client {

namespace {

// Between questions for a device whose disk is slow at the server.
constexpr uint64_t kAskAgainNs = 100 * base::kMillisecond;

/// What the server may hold for us by an answer to OPEN of which nothing can be used: nobody else
/// must find it taken. kNoDevice: nothing.
uint32_t id_of_nonsense(const base::Error& why, std::span<const std::byte> bytes) {
  wire::OpenAnswer answer;
  if (why.code() != Errc::kProtocol || bytes.size() < sizeof(answer)) {
    return wire::kNoDevice;
  }
  std::memcpy(&answer, bytes.data(), sizeof(answer));
  const bool typed = answer.header.type == static_cast<uint16_t>(wire::MessageType::kOpenAnswer);
  const bool refusal = bytes.size() >= sizeof(wire::ExtendedOpenAnswer) && answer.device_id == 0;
  return typed && !refusal ? uint32_t{answer.device_id} : wire::kNoDevice;
}

}  // namespace

SessionImpl::SessionImpl(vhca::Device& device, RemoteSessionOptions options)
    : device_(device),
      options_(std::move(options)),
      home_(*options_.transport.reactors.front()),
      log_(home_.log().child("remote")),
      reopen_timer_(&SessionImpl::reopen_due, this),
      news_timer_(&SessionImpl::news_due, this) {
  options_.transport.user_header_bytes_max = sizeof(wire::Io);
  options_.transport.touch_buffers = options_.touch_buffers;
}

SessionImpl::~SessionImpl() = default;

/// Each device is in the domain once.
Result<trs::PathOptions> SessionImpl::path_options(const RemotePath& path) {
  size_t index = 0;
  while (index < domain_->devices() && &domain_->device(index) != path.device) ++index;
  if (index == domain_->devices()) {
    BRAID_TRY(index, domain_->add_device(*path.device));
  }
  return trs::PathOptions{path.server, index};
}

base::Status SessionImpl::add_paths() {
  for (const RemotePath& path : options_.paths) {
    BRAID_TRY(const trs::PathOptions options, path_options(path));
    options_.transport.paths.push_back(options);
  }
  return {};
}

Result<size_t> SessionImpl::add_path(const RemotePath& path) {
  BRAID_TRY(const trs::PathOptions options, path_options(path));
  return transport_->add_path(options);
}

base::Task<base::Status> SessionImpl::start() {
  BRAID_CO_TRY(domain_, trs::Domain::create(device_));
  base::Status added = add_paths();
  if (!added.ok()) co_return added;
  base::Status status;
  if (pool_bytes() > 0) status = co_await make_pool(pool_bytes());
  if (!status.ok()) co_return status;
  BRAID_CO_TRY(transport_, co_await trs::ClientSession::open(*domain_, options_.transport, *this));
  status = co_await make_queues();
  if (status.ok()) {
    path_up_ = transport_->state() == trs::SessionState::kConnected;
    status = co_await exchange_versions();
  }
  if (status.ok()) {
    follow_news();
    co_return status;
  }
  closing_ = true;
  home_.cancel(news_timer_);
  co_await transport_->close();
  co_return status;
}

base::Task<void> SessionImpl::close() {
  closing_devices_ = true;
  while (joining_ > 0) co_await joined_->wait();
  while (!devices_.empty()) co_await devices_.front()->close();
  closing_ = true;
  home_.cancel(reopen_timer_);
  home_.cancel(news_timer_);
  co_await transport_->close();
}

bool SessionImpl::needs_path_besides(const DeviceImpl& device) const {
  if (closing_devices_) return false;
  return std::any_of(devices_.begin(), devices_.end(), [&](const DeviceImpl* other) {
    return other != &device && !other->closing();
  });
}

std::string SessionImpl::server_text() const {
  const vhca::Address& server = options_.transport.server;
  return fmt::format("{}:{}", server.ip, server.port);
}

std::vector<RemoteDevice*> SessionImpl::devices() const {
  return {devices_.begin(), devices_.end()};
}

/// Sends a control message: the server's errno, or an error of the path. Several at a time.
base::Task<Result<Errc>> SessionImpl::admin(std::string what, trs::Direction direction,
                                            std::span<const std::byte> header,
                                            std::span<std::byte> answer,
                                            trs::LateAnswer late_answer) {
  trs::AdminRequest request;
  request.what = std::move(what);
  request.direction = direction;
  request.user_header = header;
  request.data = answer;
  request.late_answer = std::move(late_answer);
  co_return co_await transport_->admin(request);
}

base::Task<base::Status> SessionImpl::exchange_versions() {
  wire::SessionInfo mine;
  mine.header.type = static_cast<uint16_t>(wire::MessageType::kSessionInfo);
  std::array<std::byte, sizeof(wire::SessionInfo)> answer{};
  const std::string what = "the exchange of versions";
  BRAID_CO_TRY(const Errc status,
               co_await admin(what, trs::Direction::kRead, wire::bytes_of(mine), answer));
  if (status != Errc::kOk) {
    co_return make_error(status, "{}: the exchange of versions failed: {}", server_text(),
                         to_string(status));
  }
  auto theirs = wire::parse_session_info(answer, wire::MessageType::kSessionInfoAnswer);
  if (!theirs.ok()) co_return theirs.error().with("{}", server_text());
  if (theirs->version > wire::kVersionMajor) {
    co_return make_error(Errc::kProtocol,
                         "{} answers version {} of the protocol to an offer of {}: must not be "
                         "more",
                         server_text(), theirs->version, wire::kVersionMajor);
  }
  version_ = theirs->version;
  co_return base::ok_status();
}

/// `claim`: none at the first opening.
base::Task<OpenReply> SessionImpl::send_open(std::string name, wire::AccessMode mode, Claim claim) {
  OpenReply reply;
  auto open = wire::make_open(name, mode);
  if (!open.ok()) {
    reply.answer = open.error();
    co_return reply;
  }
  std::array<std::byte, sizeof(wire::ExtendedOpenAnswer)> space{};
  const std::span<std::byte> answer = std::span(space).first(
      limits().braid_peer ? sizeof(wire::ExtendedOpenAnswer) : sizeof(wire::OpenAnswer));
  const std::string what = fmt::format("opening '{}'", name);
  const wire::ClaimingOpen claiming = wire::make_claim(*open, claim.tenure, claim.remap);
  const bool claims = claim.again && limits().braid_peer;
  const auto message = claims ? wire::bytes_of(claiming) : wire::bytes_of(*open);
  trs::LateAnswer late = [this, name, mode](Errc end, std::span<const std::byte> data) {
    if (end == Errc::kOk) opened_late(name, mode, data);
  };
  auto status = co_await admin(what, trs::Direction::kRead, message, answer, std::move(late));
  if (!status.ok()) {
    // In time without an answer: this opening's trouble, as the path is up. Else the path's.
    reply.answer = status.error();
    reply.unanswered = status.code() == Errc::kTimedOut;
    if (!reply.unanswered) reply.path = status.error();
    co_return reply;
  }
  if (*status != Errc::kOk) {
    reply.answer = make_error(*status, "the server refused to open '{}' in mode {}: {}", name,
                              wire::to_string(mode), to_string(*status));
    co_return reply;
  }
  reply.answer = wire::parse_open_answer(answer);
  if (reply.answer.ok()) co_return reply;
  reply.answer = reply.answer.error().with("opening '{}' at {}", name, server_text());
  const uint32_t id = id_of_nonsense(reply.answer.error(), answer);
  if (id != wire::kNoDevice) co_await send_close(id);
  co_return reply;
}

/// Asks again while the server says that the disk is slow; other control messages go between.
base::Task<Result<wire::OpenedDevice>> SessionImpl::open_patiently(std::string name,
                                                                   wire::AccessMode mode) {
  for (const uint64_t began_ns = home_.now_ns();;) {
    const uint64_t generation = path_generation_;
    const Claim none;
    OpenReply reply = co_await send_open(name, mode, none);
    if (!reply.path.ok()) co_return reply.path.error();
    if (generation != path_generation_ || closing_) {
      co_return make_error(Errc::kDisconnected, "cannot open '{}': the path was lost meanwhile",
                           name);
    }
    // A server that does not answer at all keeps what it was asked with: it is not asked again.
    const bool slow = reply.answer.code() == Errc::kTimedOut && !reply.unanswered;
    if (!slow) co_return std::move(reply.answer);
    if (home_.now_ns() - began_ns >= options_.open_patience_ns) {
      co_return reply.answer.error().with("given up after {} s",
                                          options_.open_patience_ns / base::kSecond);
    }
    co_await home_.sleep_ns(kAskAgainNs);
    if (!path_up_ || closing_) {
      co_return make_error(Errc::kDisconnected, "cannot open '{}': {}", name, explain());
    }
  }
}

/// An OPEN that had been given up was done after all: whoever wants the device must not find it
/// held by nobody.
void SessionImpl::opened_late(const std::string& name, wire::AccessMode mode,
                              std::span<const std::byte> answer) {
  auto opened = wire::parse_open_answer(answer);
  const uint32_t id = opened.ok() ? opened->device_id : id_of_nonsense(opened.error(), answer);
  if (id == wire::kNoDevice || closing_) return;
  // Asked again, the server gives the same device once more.
  const Opening same{name, mode};
  if (std::find(opening_.begin(), opening_.end(), same) != opening_.end()) return;
  for (const DeviceImpl* device : devices_) {
    if (device->name() == name && device->mode() == mode && device->wants_id()) return;
  }
  close_unused(id);
}

/// If no device has it in the end.
void SessionImpl::close_unused(uint32_t id) {
  late_ids_.push_back(id);
  if (late_task_ && !late_task_.done()) return;
  late_task_ = close_late();
  late_task_.start();
}

bool SessionImpl::in_use(uint32_t id) const {
  return std::any_of(devices_.begin(), devices_.end(),
                     [&](const DeviceImpl* each) { return each->id_at_server() == id; });
}

base::Task<void> SessionImpl::close_late() {
  while (!late_ids_.empty()) {
    // The server gives what a session has open once more, under the same id: to who maps it again,
    // or by another spelling.
    if (opening() || !path_up_) {
      co_await home_.sleep_ns(kAskAgainNs);
      continue;
    }
    const uint32_t id = late_ids_.back();
    late_ids_.pop_back();
    if (!in_use(id)) co_await send_close(id);
  }
}

base::Task<void> SessionImpl::send_close(uint32_t device_id) {
  wire::Close close;
  close.header.type = static_cast<uint16_t>(wire::MessageType::kClose);
  close.device_id = device_id;
  // If it does not arrive the path is gone, and the server has closed the device with it.
  const std::string what = "closing a device";
  const std::span<std::byte> nothing;
  (void)co_await admin(what, trs::Direction::kWrite, wire::bytes_of(close), nothing);
}

base::Error SessionImpl::being_closed(const std::string& name) const {
  return make_error(Errc::kCanceled, "cannot open '{}': the session with {} is being closed", name,
                    server_text());
}

base::Task<Result<std::unique_ptr<RemoteDevice>>> SessionImpl::open_device(
    RemoteDeviceOptions options) {
  const auto open_already = [&](const DeviceImpl* device) {
    return device->name() == options.name;
  };
  const auto being_opened = [&](const Opening& other) { return other.name == options.name; };
  if (std::any_of(devices_.begin(), devices_.end(), open_already) ||
      std::any_of(opening_.begin(), opening_.end(), being_opened)) {
    co_return make_error(Errc::kExists, "'{}' of {} is open already, or being opened", options.name,
                         server_text());
  }
  if (closing_devices_) co_return being_closed(options.name);
  if (!path_up_) {
    co_return make_error(Errc::kDisconnected, "cannot open '{}': {}", options.name, explain());
  }
  const Opening opening{options.name, options.mode};
  opening_.push_back(opening);
  auto reply = co_await open_patiently(options.name, options.mode);
  std::erase(opening_, opening);
  opening_ended();
  if (!reply.ok()) co_return reply.error();
  const wire::OpenedDevice& opened = *reply;
  if (closing_devices_) {
    co_await send_close(opened.device_id);
    co_return being_closed(options.name);
  }
  for (const DeviceImpl* device : devices_) {
    // The server gives what a session has open once more, under the same id.
    if (device->id_at_server() != opened.device_id) continue;
    co_return make_error(Errc::kExists, "'{}' of {} is open already, as '{}'", options.name,
                         server_text(), device->name());
  }
  auto device = std::make_unique<DeviceImpl>(*this, ++serials_, options, opened);
  devices_.push_back(device.get());
  choose_lost_after();
  device->join();
  ++joining_;
  co_await queues_passed();
  const bool too_late = closing_devices_;
  if (too_late) co_await device->close();
  --joining_;
  joined_->notify_all();
  if (too_late) co_return being_closed(options.name);
  log_.info("opened '{}' of {} in mode {}: {} bytes, {}", options.name, server_text(),
            wire::to_string(options.mode), opened.size_bytes,
            opened.identity.empty() ? "no identity" : opened.identity);
  co_return std::unique_ptr<RemoteDevice>(std::move(device));
}

/// Whoever waits for longer would be lost with the others.
void SessionImpl::choose_lost_after() {
  uint64_t longest_ns = 0;
  for (const DeviceImpl* device : devices_)
    longest_ns = std::max(longest_ns, device->lost_after_ns());
  transport_->set_lost_after(devices_.empty() ? base::kNever : longest_ns);
}

void SessionImpl::forget(DeviceImpl& device) {
  if (std::erase(devices_, &device) > 0) choose_lost_after();
}

}  // namespace client
}  // namespace braid::bnbd
