#include <array>
#include <string>

#include "cli/metrics/families.h"

namespace braid::cli {

namespace {

constexpr Family<DeviceSample> kDevice[] = {
    {"braid_device_gave_up", kGauge, "1: I/O fails until the device is open again.",
     [](const DeviceSample& d) -> uint64_t { return d.gave_up ? 1 : 0; }},
    {"braid_device_size_bytes", kGauge, "Size.",
     [](const DeviceSample& d) { return d.size_bytes; }},
    {"braid_device_reads_total", kCounter, "Reads that have ended well.",
     [](const DeviceSample& d) { return d.io.reads; }},
    {"braid_device_read_bytes_total", kCounter, "Bytes of these reads.",
     [](const DeviceSample& d) { return d.io.read_bytes; }},
    {"braid_device_writes_total", kCounter, "Writes that have ended well.",
     [](const DeviceSample& d) { return d.io.writes; }},
    {"braid_device_written_bytes_total", kCounter, "Bytes of these writes.",
     [](const DeviceSample& d) { return d.io.write_bytes; }},
    {"braid_device_flushes_total", kCounter, "Flushes that have ended well.",
     [](const DeviceSample& d) { return d.io.flushes; }},
    {"braid_device_discards_total", kCounter, "Discards that have ended well.",
     [](const DeviceSample& d) { return d.io.discards; }},
    {"braid_device_write_zeroes_total", kCounter, "Write-zeroes that have ended well.",
     [](const DeviceSample& d) { return d.io.write_zeroes; }},
    {"braid_device_secure_erases_total", kCounter, "Secure erases that have ended well.",
     [](const DeviceSample& d) { return d.io.secure_erases; }},
    {"braid_device_errors_total", kCounter, "Requests that have failed.",
     [](const DeviceSample& d) { return d.io.errors; }},
    {"braid_device_copies_total", kCounter,
     "Payloads that were copied, as they did not lie in registered memory.",
     [](const DeviceSample& d) { return d.io.copies; }},
    {"braid_device_lent_reads_total", kCounter, "Reads answered from the device's own memory.",
     [](const DeviceSample& d) { return d.io.lent; }},
    {"braid_device_requests_in_progress", kGauge, "Requests that have begun.",
     [](const DeviceSample& d) { return d.in_progress; }},
    {"braid_device_requests_waiting", kGauge, "Requests behind the queue depth.",
     [](const DeviceSample& d) { return d.waiting; }},
    {"braid_device_requests_sent_total", kCounter, "Requests to the server, parts counted each.",
     [](const DeviceSample& d) { return d.sent; }},
    {"braid_device_reopened_total", kCounter, "Times that it was opened again on a new path.",
     [](const DeviceSample& d) { return d.reopened; }},
    {"braid_device_losses_total", kCounter,
     "Restarts of the server's machine that lost acknowledged writes.",
     [](const DeviceSample& d) { return d.losses; }},
    {"braid_device_flushes_failed_total", kCounter, "Flushes that failed to report a loss.",
     [](const DeviceSample& d) { return d.flushes_failed; }},
    {"braid_device_kernel_attached", kGauge,
     "1: the kernel has the device. 0: not yet, or it has cut it off.",
     [](const DeviceSample& d) -> uint64_t { return d.kernel && d.kernel_alive ? 1 : 0; }},
    {"braid_device_kernel_requests_total", kCounter, "Requests taken from the kernel.",
     [](const DeviceSample& d) { return d.of_kernel.requests; }},
    {"braid_device_kernel_refused_total", kCounter,
     "Requests of the kernel that were answered with an error at once.",
     [](const DeviceSample& d) { return d.of_kernel.refused; }},
    {"braid_device_kernel_errors_total", kCounter, "Requests of the kernel that failed.",
     [](const DeviceSample& d) { return d.of_kernel.errors; }},
    {"braid_device_kernel_lent_reads_total", kCounter,
     "Reads of the kernel answered without a copy.",
     [](const DeviceSample& d) { return d.of_kernel.lent_reads; }},
    {"braid_device_kernel_starved_total", kCounter,
     "Times that the kernel had more requests than there were slots, of which a disk has two at "
     "first: some are the moments at which it got more.",
     [](const DeviceSample& d) { return d.of_kernel.starved; }},
    {"braid_device_kernel_requests_in_flight", kGauge, "Requests of the kernel under way.",
     [](const DeviceSample& d) -> uint64_t { return d.of_kernel.in_flight; }},
};

// 1.024 us to 8.6 s. Each is where one of bnbd/latency.h's buckets ends, so the counts are exact.
constexpr unsigned kFirstBit = 10;
constexpr size_t kBounds = 24;

const std::array<std::string, kBounds>& bound_texts() {
  static const std::array<std::string, kBounds> kTexts = [] {
    std::array<std::string, kBounds> made;
    for (size_t i = 0; i < kBounds; ++i) made[i] = seconds_text(uint64_t{1} << (kFirstBit + i));
    return made;
  }();
  return kTexts;
}

void write_latency(Exposition& text, const Labels& labels, const HistogramSample& histogram) {
  std::array<CumulativeBucket, kBounds> below;
  auto at = histogram.buckets.begin();
  uint64_t count = 0;
  for (size_t i = 0; i < kBounds; ++i) {
    const uint64_t bound_ns = uint64_t{1} << (kFirstBit + i);
    for (; at != histogram.buckets.end() &&
           bnbd::LatencyHistogram::upper_end_ns(at->first) < bound_ns;
         ++at)
      count += at->second;
    below[i] = {bound_texts()[i], count};
  }
  for (; at != histogram.buckets.end(); ++at) count += at->second;
  text.histogram(labels, below, count, histogram.sum_ns);
}

}  // namespace

void write_devices(Exposition& text, std::span<const NodeSample> nodes) {
  std::vector<Labelled<DeviceSample>> devices;
  for (const NodeSample& node : nodes)
    for (const DeviceSample& device : node.devices)
      devices.push_back({Labels("node", node.node).add("device", device.name), &device});
  write_info<DeviceSample>(
      text, "braid_device_info",
      "A device: its place here, what it is of, and its session's number, 0 of a local one.",
      devices, [](const DeviceSample& device, Labels& labels) {
        labels.add("path", device.path)
            .add("target", device.target)
            .add("backend", device.backend)
            .add("server", device.server)
            .add("session", std::to_string(device.session));
      });
  write_states(text, "braid_device_state", "1: it is in this state.", kDeviceStates, devices);
  write<DeviceSample>(text, kDevice, devices);
  text.family("braid_device_latency_seconds", MetricType::kHistogram,
              "From a request's submission to its end, waiting included.");
  for (const Labelled<DeviceSample>& device : devices)
    for (size_t kind = 0; kind < kLatencyWords.size(); ++kind)
      write_latency(text, device.labels.with("kind", kLatencyWords[kind]),
                    device.of->latency[kind]);
}

}  // namespace braid::cli
