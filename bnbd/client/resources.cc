// What a session has of each reactor, and memory: copy buffers, the registration domain.
#include <algorithm>

#include "base/pages.h"
#include "bnbd/client/device_impl.h"
#include "bnbd/client/session_impl.h"

namespace braid::bnbd::client {

using base::Result;

namespace {

constexpr uint64_t kBuffersMin = 2;
constexpr uint64_t kBuffersMax = 1024;
// Of the copy buffers where all reads land there.
constexpr uint64_t kGuardedPoolBytes = 64 << 20;
// Of memory that the server writes answers to.
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

/// Registered memory of the session.
class RemoteRegion : public Region {
 public:
  RemoteRegion(std::unique_ptr<base::Segment> segment, std::unique_ptr<vhca::Mr> registration,
               trs::Domain& registered_in)
      : segment_(std::move(segment)), mr_(std::move(registration)), domain_(registered_in) {}
  /// Waits for nobody; the segment lives until the server has let go of it.
  ~RemoteRegion() override { domain_.release(std::move(mr_), std::move(segment_)); }
  std::byte* data() const override { return segment_->data(); }
  size_t size() const override { return segment_->size(); }
  const vhca::Mr* mr() const override { return mr_.get(); }
  const void* domain() const override { return &domain_; }

 private:
  std::shared_ptr<base::Segment> segment_;
  std::unique_ptr<vhca::Mr> mr_;
  trs::Domain& domain_;
};

/// Has every page there before I/O starts: memory may be short just when the kernel writes to us.
base::Status fill(base::Segment& segment) {
  return base::populate({segment.data(), segment.size()});
}

}  // namespace

uint64_t SessionImpl::pool_bytes() const {
  return std::max(options_.copy_pool_bytes, options_.guard_reads ? kGuardedPoolBytes : 0);
}

/// Copy buffers. Before there is a path, as a device may take long to register memory, and we say
/// nothing meanwhile: more than its patience, for a server.
base::Task<base::Status> SessionImpl::make_pool(uint64_t size_bytes) {
  if (buffers_mr_) domain_->release(std::move(buffers_mr_), std::move(memory_));
  BRAID_CO_TRY(auto memory, home_.host().create_segment(size_bytes, "remote session"));
  memory_ = std::move(memory);
  if (options_.touch_buffers) {
    // On a worker: it takes half a millisecond a MiB, in which other disks of the reactor have I/O.
    const auto filled = std::make_shared<base::Status>();
    std::function<void()> work = [memory = memory_, filled] { *filled = fill(*memory); };
    co_await home_.offload(std::move(work));
    if (!filled->ok()) co_return *filled;
  }
  BRAID_CO_TRY(buffers_mr_, domain_->register_memory(memory_->data(), memory_->size(), kAccess));
  co_return base::Status();
}

/// The copy buffers are divided up among the reactors; and what else each has.
base::Task<base::Status> SessionImpl::make_queues() {
  const uint64_t each = limits().max_io_bytes;
  const uint64_t in_all = std::clamp(pool_bytes() / each, kBuffersMin, kBuffersMax);
  const uint64_t count = std::max(in_all / reactors(), kBuffersMin);
  const uint64_t due = reactors() * count * each;
  if (memory_ == nullptr || memory_->size() < due) {
    const base::Status made = co_await make_pool(due);
    if (!made.ok()) co_return made;
  }
  for (size_t i = 0; i < reactors(); ++i) {
    const SessionQueue::Buffers buffers{memory_->data() + i * count * each, each,
                                        static_cast<uint32_t>(count), buffers_mr_.get(),
                                        options_.guard_reads};
    queues_.push_back(std::make_shared<SessionQueue>(
        *options_.transport.reactors[i], transport_->queue(i), *domain_, buffers, reactors() > 1));
  }
  co_return base::Status();
}

Result<std::unique_ptr<Region>> SessionImpl::create_region(size_t size_bytes) {
  BRAID_TRY(auto segment, home_.host().create_segment(size_bytes, "block region"));
  if (options_.touch_buffers) BRAID_CHECK(fill(*segment));
  const int access = options_.guard_reads ? 0 : kAccess;
  BRAID_TRY(auto mr, domain_->register_memory(segment->data(), segment->size(), access));
  return std::unique_ptr<Region>(
      std::make_unique<RemoteRegion>(std::move(segment), std::move(mr), *domain_));
}

void SessionImpl::serve() {
  for (const auto& queue : queues_) {
    if (&queue->reactor() == &home_) {
      queue->serve();
    } else {
      queue->reactor().post([queue] { queue->serve(); });
    }
  }
}

/// Returns when what was sent to the queues' reactors before has been done there.
base::Task<void> SessionImpl::queues_passed() {
  struct Round {
    explicit Round(base::Reactor& home) : passed(home) {}
    size_t due = 0;
    base::Signal passed;
  };
  std::shared_ptr<Round> round;
  for (const auto& queue : queues_) {
    base::Reactor& reactor = queue->reactor();
    if (&reactor == &home_) continue;
    if (!round) round = std::make_shared<Round>(home_);
    ++round->due;
    reactor.post([round, &home = home_] {
      home.post([round] {
        --round->due;
        round->passed.notify_all();
      });
    });
  }
  while (round && round->due > 0) co_await round->passed.wait();
}

std::vector<trs::ClientStatistics> SessionImpl::statistics_by_reactor() const {
  std::vector<trs::ClientStatistics> all;
  for (size_t i = 0; i < reactors(); ++i) all.push_back(transport_->statistics(i));
  return all;
}

trs::ClientStatistics SessionImpl::statistics() const {
  trs::ClientStatistics sum = transport_->statistics(0);  // its reconnects are the session's
  for (size_t i = 1; i < reactors(); ++i) {
    const trs::ClientStatistics one = transport_->statistics(i);
    sum.reads += one.reads;
    sum.read_bytes += one.read_bytes;
    sum.writes += one.writes;
    sum.write_bytes += one.write_bytes;
    sum.in_flight += one.in_flight;
    sum.resent += one.resent;
    sum.held += one.held;
    sum.messages_sent += one.messages_sent;
    sum.messages_received += one.messages_received;
    sum.permits += one.permits;
    sum.permits_free += one.permits_free;
    sum.permits_lent += one.permits_lent;
    sum.permits_borrowed += one.permits_borrowed;
  }
  return sum;
}

}  // namespace braid::bnbd::client
