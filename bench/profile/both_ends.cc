#include "bench/profile/both_ends.h"

#include "vhca/soft_device.h"

namespace braid::bench {
namespace {

constexpr const char* kExport = "store";

std::unique_ptr<vhca::Device> device_of(const BraidSide& side, const BothEnds::Wrap& wrap) {
  auto device = must(vhca::create_soft_device(*side.host, *side.reactor));
  return wrap ? wrap(std::move(device)) : std::move(device);
}

}  // namespace

BothEnds::BothEnds(const Wrap& wrap, trs::ChunkGuard guard)
    : server_device_(device_of(server_, wrap)), client_device_(device_of(client_, wrap)) {
  bnbd::ExportServerOptions serve;
  serve.named.push_back(
      {.kind = bnbd::NamedExport::Kind::kMemory, .name = kExport, .size_bytes = kStoreBytes});
  serve.transport.listen = {.ip = "127.0.0.1", .port = 0};
  serve.transport.reactors = {server_.reactor.get()};
  serve.transport.guard = guard;
  exports_ = must(bnbd::ExportServer::create(*server_device_, serve));
  bnbd::RemoteSessionOptions options;
  options.transport.session_name = "both-ends";
  options.transport.server = exports_->address();
  options.transport.reactors = {client_.reactor.get()};
  session_ = must(run(bnbd::RemoteSession::open(*client_device_, options)));
  bnbd::RemoteDeviceOptions device;
  device.name = kExport;
  remote_ = must(run(session_->open_device(device)));
}

bnbd::BlockStatistics BothEnds::store_statistics() const {
  return exports_->exports().at(0).statistics;
}

BothEnds::~BothEnds() {
  run(remote_->close());
  run(session_->close());
  (void)run(exports_->stop());
}

BothEndsJob::BothEndsJob(BothEnds& ends, const BlockWork& work)
    : ends_(ends),
      region_(must(ends.remote().create_region(work.depth * work.block_bytes))),
      requests_(work.depth) {
  std::byte* place = region_->data();
  for (bnbd::BlockRequest& request : requests_) {
    request.op = work.write ? bnbd::BlockOp::kWrite : bnbd::BlockOp::kRead;
    request.length_bytes = work.block_bytes;
    request.buffer = {.region = region_.get(), .address = place};
    place += work.block_bytes;
    request.context = this;
    request.done = [](bnbd::BlockRequest& done, base::Errc status) {
      must(status, "a request to the server");
      auto& job = *static_cast<BothEndsJob*>(done.context);
      --job.open_;
      if (job.left_ > 0) job.submit(done);
    };
  }
}

void BothEndsJob::submit(bnbd::BlockRequest& request) {
  --left_;
  ++open_;
  const uint64_t blocks = BothEnds::kStoreBytes / request.length_bytes;
  request.offset_bytes = random_.below(blocks) * request.length_bytes;
  ends_.remote().submit(request);
}

void BothEndsJob::warm_up() {
  constexpr uint64_t kRequests = 2000;
  constexpr uint64_t kAsleepNs = 20 * base::kMillisecond;  // kSilentNs, and fences 2 ms apart
  const uint64_t began_ns = ends_.now_ns();
  do {
    run(kRequests);
  } while (ends_.now_ns() - began_ns < kAsleepNs);
}

void BothEndsJob::run(uint64_t count) {
  left_ = count;
  for (bnbd::BlockRequest& request : requests_) {
    if (left_ > 0) submit(request);
  }
  while (open_ > 0) ends_.turn();
}

}  // namespace braid::bench
