// A sample with something of everything, for tests.
#pragma once

#include <string>

#include "cli/metrics/sample.h"

namespace braid::cli {

inline DeviceSample full_device(const std::string& name) {
  DeviceSample device;
  device.name = name;
  device.path = "/dev/loop3";
  device.target = "10.0.0.1:1234/" + name;
  device.backend = "remote";
  device.server = "10.0.0.1:1234";
  device.session = 1;
  device.state = "open";
  device.kernel = device.kernel_alive = true;
  device.size_bytes = 1 << 30;
  device.in_progress = 2;
  device.sent = 77;
  device.io.reads = 40;
  device.io.read_bytes = 40 * 4096;
  device.io.writes = 5;
  device.io.write_bytes = 5 * 4096;
  device.filters = {{"checksum", "checksum", {.requests = 45, .verified = 39}},
                    {"delay", "delay:5ms", {.requests = 45, .held = 9, .held_ns = 45'000'000}},
                    {"error", "error:flush", {.requests = 45, .failed = 2}}};
  bnbd::LatencyHistogram reads;
  for (uint64_t us = 1; us <= 40; ++us) reads.record(us * 1000);
  device.latency[0] = sample_of(reads);
  device.latency[1] = {{{0, 1}, {bnbd::LatencyHistogram::kBuckets - 1, 1}}, 5};
  return device;
}

inline NodeSample full_sample(const std::string& node = "daemon") {
  NodeSample sample;
  sample.node = node;
  sample.role = "daemon";
  sample.version = "1.2.3";
  sample.hca = "software HCA";
  sample.at_ns = 1'000'000'000;
  sample.process = {.pid = 7,
                    .cpu_user_ns = 1'500'000'000,
                    .cpu_system_ns = 1,
                    .resident_bytes = 4096,
                    .heap_bytes = 100,
                    .open_fds = 9,
                    .max_fds = 1024,
                    .threads = 4,
                    .started_s = 1'700'000'000};
  sample.devices = {full_device("disk")};

  SessionSample session;
  session.number = 1;
  session.server = "10.0.0.1:1234";
  session.peer = "Braid";
  session.state = "connected";
  session.queue_depth = 128;
  session.all.reads = 40;
  session.reactors.resize(2);
  session.reactors[1].permits = 64;
  PathSample path;
  path.path = "10.0.0.2@10.0.0.1:1234";
  path.hca = "software HCA, TCP";
  path.state = "reconnecting";
  path.reconnects = 3;
  path.connections.resize(2);
  path.connections[1].reads = 40;
  path.connections[1].latency = {0, 10, 20, 5};
  path.connections[1].latency.back() = 5;
  path.connections[1].latency_sum_ns = 123'456'789;
  session.paths = {path};
  sample.sessions = {session};

  sample.server.serves = true;
  sample.server.exports.opened = 3;
  sample.server.exports.requests = {10, 20};
  sample.server.transport.sessions = 1;
  sample.server.transport.keys_refused = {{"no such key", 2}};
  sample.server.transport.breaches = {{"a bad length", 1}};
  sample.nbd.serves = true;
  sample.nbd.door = {.half_open = 1, .accepted = 9, .granted = 6, .refused = 2, .timed_out = 1};
  ExportSample exported;
  exported.name = "vm/a.img";
  exported.kind = "file";
  exported.holders.rw = 1;
  exported.io.writes = 8;
  sample.exports = {exported};
  ClientSample client;
  client.number = 4;
  client.name = "host.daemon";
  client.peer = "10.0.0.2";
  client.kind = "Braid";
  client.devices = 1;
  client.paths = {{"10.0.0.2", {{}, {.reads = 6}}}, {"10.0.0.2", {{}, {.reads = 7}}}};
  sample.clients = {client};
  return sample;
}

}  // namespace braid::cli
