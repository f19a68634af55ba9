#include "cli/metrics/families.h"
#include "cli/metrics/metrics_text.h"

namespace braid::cli {

namespace {

constexpr Family<ProcessSample> kProcess[] = {
    {"braid_process_cpu_user_seconds_total", kCounter, "Processor time in user space.",
     [](const ProcessSample& p) { return p.cpu_user_ns; }, Unit::kNanoseconds},
    {"braid_process_cpu_system_seconds_total", kCounter, "Processor time in the kernel.",
     [](const ProcessSample& p) { return p.cpu_system_ns; }, Unit::kNanoseconds},
    {"braid_process_resident_memory_bytes", kGauge, "Memory of the process that is resident.",
     [](const ProcessSample& p) { return p.resident_bytes; }},
    {"braid_process_heap_bytes", kGauge, "Memory of the heap that is in use.",
     [](const ProcessSample& p) { return p.heap_bytes; }},
    {"braid_process_open_fds", kGauge, "Descriptors that are open.",
     [](const ProcessSample& p) { return p.open_fds; }},
    {"braid_process_max_fds", kGauge, "Descriptors that may be open.",
     [](const ProcessSample& p) { return p.max_fds; }},
    {"braid_process_threads", kGauge, "Threads.", [](const ProcessSample& p) { return p.threads; }},
    {"braid_process_start_time_seconds", kGauge, "When it was started, since 1970.",
     [](const ProcessSample& p) { return p.started_s; }},
};

}  // namespace

void write_nodes(Exposition& text, std::span<const NodeSample> nodes) {
  std::vector<Labelled<NodeSample>> all;
  std::vector<Labelled<ProcessSample>> processes;
  for (const NodeSample& node : nodes) {
    all.push_back({Labels("node", node.node), &node});
    processes.push_back({Labels("node", node.node), &node.process});
  }
  write_info<NodeSample>(
      text, "braid_build_info", "The node: its version, role and device.", all,
      [](const NodeSample& node, Labels& labels) {
        labels.add("version", node.version).add("role", node.role).add("hca", node.hca);
      });
  write<ProcessSample>(text, kProcess, processes);
}

std::string metrics_text(std::span<const NodeSample> nodes) {
  Exposition text;
  write_nodes(text, nodes);
  write_devices(text, nodes);
  write_filters(text, nodes);
  write_sessions(text, nodes);
  write_server(text, nodes);
  return text.take();
}

}  // namespace braid::cli
