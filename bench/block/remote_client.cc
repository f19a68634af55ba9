#include "bench/block/remote_client.h"

namespace braid::bench {

RemoteClient::RemoteClient(uint16_t port, const RemoteWay& way, const BlockWork& work,
                           uint64_t pause_ns)
    : work_(work), side_(way.poll_budget_ns) {
  device_ = create_device(side_, way.wire);
  session_ = connect(side_, *device_, port);
  remote_ = open_export(side_, *session_, kStoreExport);
  load_.emplace(*side_.reactor, *remote_, work, pause_ns);
}

RemoteClient::~RemoteClient() {
  load_.reset();
  side_.reactor->run_until_done(remote_->close());
  side_.reactor->run_until_done(session_->close());
}

void RemoteClient::fill() {
  load_->fill();
}

Sample RemoteClient::run(const BlockWorkload& sizes, pid_t server) {
  const CpuMeter meter({server});
  Sample sample{.value = in_unit_of(work_, load_->run_for(sizes.run_ms))};
  sample.cpu_ns = static_cast<double>(meter.used_ns()) / static_cast<double>(load_->operations());
  load_->time_each();
  load_->run_for(sizes.latency_ms);
  sample.latencies = load_->timed();
  load_->compare_some();
  return sample;
}

}  // namespace braid::bench
