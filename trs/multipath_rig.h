// For tests of several paths: a session rig whose client and server have two ports each, A and B.
#pragma once

#include <gmock/gmock.h>

#include "trs/session_rig.h"

namespace braid::trs::testing {

inline constexpr const char* kServerIpB = "10.1.0.1";
inline constexpr const char* kClientIpB = "10.1.0.2";

class MultipathRig : public SessionRig {
 protected:
  explicit MultipathRig(size_t reactors = 1, uint64_t seed = 1) : SessionRig(reactors, seed) {
    world.fabric().add_port(*server_machine, kServerIpB);
    world.fabric().add_port(*client_machine, kClientIpB);
    server_ips = {kServerIpB};
    adjust_client = [](ClientProcess& process) {
      process.more_paths = {process.add_port(kClientIpB, kServerIpB)};
    };
  }
  void connect_both(const std::function<void(ClientOptions&)>& adjust = {}) {
    connect(adjust);
    ASSERT_TRUE(until_up(2));
  }
  size_t up() const {
    const auto paths = client->session->paths();
    return static_cast<size_t>(std::count_if(
        paths.begin(), paths.end(), [](const PathStatus& path) { return path.connected; }));
  }
  bool until_up(size_t count) {
    return until([&, count] { return up() == count; });
  }
  /// Everything, or one way only.
  void cut_a(bool on) {
    to_server_a(on);
    to_client_a(on);
  }
  void cut_b(bool on) {
    world.fabric().set_black_hole(kClientIpB, kServerIpB, on);
    world.fabric().set_black_hole(kServerIpB, kClientIpB, on);
  }
  void to_server_a(bool lost) { world.fabric().set_black_hole(kClientIp, kServerIp, lost); }
  void to_client_a(bool lost) { world.fabric().set_black_hole(kServerIp, kClientIp, lost); }
  /// `removed` tells how it went.
  void remove_path(size_t id, std::optional<base::Status>& removed) {
    client->home().spawn(remove_task(*client->session, id, removed));
    client->home().wake();
  }
  static base::Task<void> remove_task(ClientSession& session, size_t id,
                                      std::optional<base::Status>& removed) {
    base::Status status = co_await session.remove_path(id);
    removed = status;
  }
  std::vector<std::unique_ptr<Io>> make_writes(size_t count) {
    std::vector<std::unique_ptr<Io>> all;
    for (size_t i = 0; i < count; ++i) {
      all.push_back(client->make_io(Direction::kWrite, i * 4096, 4096));
      fill(all.back()->buffer, i);
    }
    return all;
  }
  void submit_all(const std::vector<std::unique_ptr<Io>>& all) {
    for (size_t i = 0; i < all.size(); ++i) client->submit(*all[i], i % reactor_count);
  }
  static bool all_done(const std::vector<std::unique_ptr<Io>>& all) {
    return std::all_of(all.begin(), all.end(), [](const auto& io) { return io->done; });
  }
  void expect_written_once(const std::vector<std::unique_ptr<Io>>& all) {
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i]->status, base::Errc::kOk) << i;
      EXPECT_EQ(all[i]->completions, 1u) << i;
      EXPECT_EQ(std::count(store.write_log.begin(), store.write_log.end(), all[i]->op.offset), 1)
          << "write " << i;
      const auto there = std::span(store.bytes).subspan(all[i]->op.offset, all[i]->buffer.size());
      EXPECT_TRUE(filled(there, i)) << i;
    }
  }
  uint64_t sent(size_t path) const {
    uint64_t sum = 0;
    const std::vector<PathStatus> paths = client->session->paths();
    for (const auto& connection : paths[path].connections) {
      sum += connection.writes + connection.reads;
    }
    return sum;
  }
};

}  // namespace braid::trs::testing
