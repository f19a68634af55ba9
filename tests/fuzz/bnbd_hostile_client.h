// A client that puts any header of BNBD on any request, over the shipping TRS.
#pragma once

#include "tests/fuzz/bnbd_honest_client.h"

namespace braid::bnbd::two_party {

/// A client that puts any header on any request.
class HostileClient final : public Node, private trs::SessionUser {
 public:
  HostileClient(base::sim::SimHost& process, const char* ip, std::string name)
      : Node(process, ip, 1, {.registrations_max = kRegistrationsMax}), name_(std::move(name)) {
    domain_ = std::move(trs::Domain::create(*device)).value();
    mr_ = std::move(domain_->register_memory(memory.data(), memory.size(),
                                             IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE))
              .value();
  }
  void open() {
    home().spawn(open_task());
    home().wake();
  }
  void close() {
    closing_ = true;
    home().spawn(close_task());
    home().wake();
  }
  /// False: no permit, or no session.
  bool submit(trs::Direction direction, std::vector<std::byte> header, uint32_t data_bytes) {
    if (!session || closing_) return false;
    trs::Permit permit = session->queue(0).acquire();
    if (!permit) return false;
    requests_.push_back(std::make_unique<Request>());
    Request& its = *requests_.back();
    its.header = std::move(header);
    its.trs.direction = direction;
    its.trs.user_header = its.header;
    its.trs.data = {mr_.get(), memory.data(), data_bytes};
    its.trs.context = &its;
    its.trs.done = [](trs::ClientRequest& done, Errc) {
      ++static_cast<Request*>(done.context)->completions;
    };
    its.trs.permit = std::move(permit);
    session->queue(0).submit(its.trs);
    home().wake();
    return true;
  }
  bool all_ended_once() const {
    return std::all_of(requests_.begin(), requests_.end(),
                       [](const auto& each) { return each->completions == 1; });
  }

  std::vector<std::byte> memory = std::vector<std::byte>(2 * kMaxIoBytes);
  uint32_t device_id = 0;  // of what it has opened last
  bool opened = false, closed = false;
  std::unique_ptr<trs::ClientSession> session;

 private:
  struct Request {
    trs::ClientRequest trs;
    std::vector<std::byte> header;
    unsigned completions = 0;
  };
  Task<void> open_task() {
    trs::ClientOptions options;
    options.session_name = name_;
    options.server = {kServerIp, kPort};
    options.reactors = reactor_list();
    trs::SessionUser& user = *this;
    auto result = co_await trs::ClientSession::open(*domain_, options, user);
    if (result.ok()) session = std::move(*result);
    opened = true;
  }
  Task<void> close_task() {
    if (session) co_await session->close();
    session.reset();  // before its domain
    closed = true;
  }
  Task<base::Status> reconnected() override { co_return base::Status(); }
  void disconnected(const base::Error&) override {}

  const std::string name_;
  std::unique_ptr<trs::Domain> domain_;
  std::unique_ptr<vhca::Mr> mr_;
  std::vector<std::unique_ptr<Request>> requests_;
  bool closing_ = false;
};

}  // namespace braid::bnbd::two_party
