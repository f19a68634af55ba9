// An RDMA device and its connection manager, as fakes of both libraries: what no device can be made
// to do when a test wants it.
#pragma once

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/linux_host.h"
#include "base/test_lines.h"
#include "vhca/ibv/device.h"
#include "vhca/ibv/library.h"

namespace braid::vhca::ibv {

/// A descriptor that is readable once somebody has written to it.
inline int silent_fd() {
  const int fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  BRAID_ASSERT(fd >= 0);
  return fd;
}

/// What stands behind the libraries' functions. The calls are plain functions, so there is one.
struct Machine {
  // --- verbs
  ibv_device device{};
  ibv_context context{};
  ibv_qp qp{};
  ibv_cq cq{};
  std::deque<ibv_wc> completions;
  std::deque<ibv_async_event> events;
  std::vector<ibv_qp_state> modified_to;
  int modification = 0;    // what each ends with
  ibv_device_attr attr{};  // further to what all have
  std::function<void()> while_polling;
  std::function<void(ibv_qp_state)> when_modified;
  std::function<void()> when_destroyed;  // a QP: before anybody hears of it
  std::function<void()> when_queried;    // a QP
  std::deque<ibv_mr> memory;
  std::deque<int> deregistrations;  // what the next ones end with; then 0
  std::deque<ibv_mw> windows;
  int windows_deallocated = 0;
  std::vector<ibv_send_wr> posted;    // as the driver got them
  uint64_t refused_wr_id = 0;         // ... but this one, which it refuses
  std::vector<size_t> chain_lengths;  // of each post
  // --- the connection manager: what the kernel holds, by channel
  std::deque<std::pair<rdma_event_channel*, rdma_cm_event>> cm_events;
  std::vector<std::pair<rdma_cm_id*, ibv_event_type>> notified;
  std::deque<rdma_cm_id> ids;  // that were made
  int ids_destroyed = 0;
};
inline Machine* machine = nullptr;

inline int fake_poll_cq(ibv_cq*, int count, ibv_wc* out) {
  if (machine->while_polling) std::exchange(machine->while_polling, nullptr)();
  int given = 0;
  for (; given < count && !machine->completions.empty(); ++given) {
    out[given] = machine->completions.front();
    machine->completions.pop_front();
  }
  return given;
}
inline int fake_post_recv(ibv_qp*, ibv_recv_wr*, ibv_recv_wr**) {
  return 0;
}

inline int fake_post_send(ibv_qp*, ibv_send_wr* wr, ibv_send_wr** bad) {
  machine->chain_lengths.push_back(0);
  for (; wr != nullptr; wr = wr->next) {
    if (wr->wr_id == machine->refused_wr_id) return *bad = wr, ENOMEM;
    machine->posted.push_back(*wr);
    ++machine->chain_lengths.back();
  }
  return 0;
}
inline ibv_mw* fake_alloc_mw(ibv_pd*, ibv_mw_type type) {
  ibv_mw& made = machine->windows.emplace_back();
  made.context = &machine->context;
  made.type = type;
  made.rkey = static_cast<uint32_t>(machine->windows.size()) << 8;
  return &made;
}
inline int fake_dealloc_mw(ibv_mw*) {
  ++machine->windows_deallocated;
  return 0;
}

inline VerbsCalls fake_verbs() {
  VerbsCalls calls;
  calls.open_device = [](ibv_device*) { return &machine->context; };
  calls.close_device = [](ibv_context* context) { return ::close(context->async_fd); };
  calls.query_device = [](ibv_context*, ibv_device_attr* attr) {
    *attr = machine->attr;
    attr->max_cqe = attr->max_qp_wr = 1 << 14;
    attr->max_sge = 32;
    return 0;
  };
  calls.get_async_event = [](ibv_context*, ibv_async_event* event) {
    if (machine->events.empty()) return -1;
    *event = machine->events.front();
    machine->events.pop_front();
    return 0;
  };
  calls.ack_async_event = [](ibv_async_event*) {};
  calls.alloc_pd = [](ibv_context* context) { return new ibv_pd{context, 0}; };
  calls.dealloc_pd = [](ibv_pd* pd) {
    delete pd;
    return 0;
  };
  calls.reg_mr = [](ibv_pd*, void* address, size_t length, int) {
    auto* const mr = &machine->memory.emplace_back();
    mr->addr = address;
    mr->length = length;
    return mr;
  };
  calls.dereg_mr = [](ibv_mr*) {
    if (machine->deregistrations.empty()) return 0;
    const int result = machine->deregistrations.front();
    machine->deregistrations.pop_front();
    return result;
  };
  calls.create_cq = [](ibv_context* context, int, void* own, ibv_comp_channel*, int) {
    machine->cq.context = context;
    machine->cq.cq_context = own;
    return &machine->cq;
  };
  calls.destroy_cq = [](ibv_cq*) { return 0; };
  calls.create_qp = [](ibv_pd*, ibv_qp_init_attr* init) {
    machine->qp.context = &machine->context;
    machine->qp.qp_context = init->qp_context;
    machine->qp.qp_num = 7;
    machine->qp.state = IBV_QPS_RTS;
    return &machine->qp;
  };
  calls.modify_qp = [](ibv_qp* qp, ibv_qp_attr* attr, int) {
    if (machine->modification != 0) return machine->modification;
    machine->modified_to.push_back(attr->qp_state);
    qp->state = attr->qp_state;
    if (machine->when_modified) machine->when_modified(attr->qp_state);
    return 0;
  };
  calls.query_qp = [](ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr*) {
    if (machine->when_queried) machine->when_queried();
    attr->qp_state = qp->state;
    return 0;
  };
  calls.destroy_qp = [](ibv_qp*) {
    if (machine->when_destroyed) machine->when_destroyed();
    return 0;
  };
  return calls;
}

inline CmCalls fake_cm() {
  CmCalls calls;
  calls.create_event_channel = [] { return new rdma_event_channel{silent_fd()}; };
  calls.destroy_event_channel = [](rdma_event_channel* channel) {
    ::close(channel->fd);
    delete channel;
  };
  calls.create_id = [](rdma_event_channel* channel, rdma_cm_id** id, void*, rdma_port_space) {
    *id = &machine->ids.emplace_back();
    (*id)->channel = channel;
    return 0;
  };
  calls.destroy_id = [](rdma_cm_id*) {
    ++machine->ids_destroyed;
    return 0;
  };
  calls.bind_addr = [](rdma_cm_id* id, sockaddr* address) {
    id->route.addr.src_addr = *address;
    return 0;
  };
  calls.listen = [](rdma_cm_id*, int) { return 0; };
  calls.reject = [](rdma_cm_id*, const void*, uint8_t) { return 0; };
  calls.get_cm_event = [](rdma_event_channel* channel, rdma_cm_event** event) {
    for (auto at = machine->cm_events.begin(); at != machine->cm_events.end(); ++at) {
      if (at->first != channel) continue;
      *event = new rdma_cm_event(at->second);
      machine->cm_events.erase(at);
      return 0;
    }
    return -1;
  };
  calls.ack_cm_event = [](rdma_cm_event* event) {
    delete event;
    return 0;
  };
  // As the kernel: what it holds of the id goes along.
  calls.migrate_id = [](rdma_cm_id* id, rdma_event_channel* to) {
    for (auto& [channel, event] : machine->cm_events) {
      if (event.id == id) channel = to;
    }
    id->channel = to;
    return 0;
  };
  calls.notify = [](rdma_cm_id* id, ibv_event_type type) {
    machine->notified.emplace_back(id, type);
    return 0;
  };
  return calls;
}

class IbvFakes : public ::testing::Test {
 protected:
  IbvFakes() {
    machine = &made;
    base::LinuxHostOptions options;
    options.log_sink = lines;
    host = std::move(*base::create_linux_host(options));
    reactor = std::move(*base::Reactor::create(*host, {}));
    auto fake = std::make_shared<Library>();
    fake->verbs = fake_verbs();
    fake->cm = fake_cm();
    library = fake;
  }
  ~IbvFakes() override {
    made.when_modified = nullptr;  // what a test's own looks at has gone
    take_down();
    machine = nullptr;
  }
  /// What make_qp() has made.
  void take_down() {
    qp.reset();
    cq.reset();
    pd.reset();
    device.reset();
  }
  /// How many lines of the log have these words. They are there once the host has gone: with it go
  /// the device and all of it. A test's own has to go before.
  size_t lines_with(const char* words) {
    take_down();
    reactor.reset();
    host.reset();
    return lines->with(words);
  }
  void make_qp(const IbvOptions& asked = {}) {
    made.context.device = &made.device;
    made.context.async_fd = silent_fd();
    made.context.ops.poll_cq = &fake_poll_cq;
    made.context.ops.post_recv = &fake_post_recv;
    made.context.ops.post_send = &fake_post_send;
    made.context.ops.alloc_mw = &fake_alloc_mw;
    made.context.ops.dealloc_mw = &fake_dealloc_mw;
    device = std::move(*IbvDevice::create(*host, *reactor, library, made.device, asked));
    pd = std::move(*device->alloc_pd());
    cq = std::move(*device->create_cq({.capacity = 16}));
    QpOptions options;
    options.send_cq = options.recv_cq = cq.get();
    qp = std::move(*pd->create_qp(options));
  }
  void complete(uint64_t wr_id, uint32_t qp_number = 7, ibv_wc_status status = IBV_WC_SUCCESS) {
    ibv_wc wc{};
    wc.wr_id = wr_id;
    wc.qp_num = qp_number;
    wc.status = status;
    made.completions.push_back(wc);
  }
  rdma_cm_event cm_event(rdma_cm_event_type type, rdma_cm_id& id) {
    rdma_cm_event event{};
    event.event = type;
    event.id = &id;
    return event;
  }

  Machine made;
  /// Written by the host's thread until the host has gone.
  const std::shared_ptr<base::TestLines> lines = std::make_shared<base::TestLines>();
  std::unique_ptr<base::Host> host;
  std::unique_ptr<base::Reactor> reactor;
  std::shared_ptr<const Library> library;
  std::unique_ptr<Device> device;
  std::unique_ptr<Pd> pd;
  std::unique_ptr<Cq> cq;
  std::unique_ptr<Qp> qp;
};

}  // namespace braid::vhca::ibv
