// A floor's two processes, a server and a client of it, each on its CPU.
//
// Main thread, with no other thread running.
#pragma once

#include <sys/types.h>

#include <functional>

#include "bench/process.h"
#include "bench/rounds.h"
#include "bench/workload.h"

namespace braid::bench {

/// What `ask` measures, given the server's process, which `get_ready` and `serve` run in, until it
/// is killed. `run_ms`: how long the passes take.
inline base::Result<Sample> measure_between(Bench& bench, unsigned run_ms,
                                            const std::function<void()>& get_ready,
                                            const std::function<void()>& serve,
                                            const std::function<Sample(pid_t server)>& ask) {
  constexpr int kPatienceMs = 60'000;
  BRAID_TRY(Process server,
            Process::call(bench.interrupts, bench.cpus.server, [&](Channel& channel) {
              get_ready();
              channel.send({{"ready", true}});
              serve();
            }));
  BRAID_TRY(const auto ready, server.receive(kPatienceMs));
  BRAID_TRY(Process client,
            Process::call(bench.interrupts, bench.cpus.client,
                          [&](Channel& channel) { channel.send(to_json(ask(server.pid()))); }));
  BRAID_TRY(const auto message, client.receive(static_cast<int>(run_ms) + kPatienceMs));
  return sample_from_json(message);
}

}  // namespace braid::bench
