// Acknowledgements get lost, requests come twice: the buffer of a write is given back at the answer
// all the same, and what the client writes there then is not what the server gets. The TCP wire,
// over simulated streams, with faults of ports.
#include <gmock/gmock.h>

#include "trs/session_rig.h"
#include "vhca/port_faults.h"

namespace braid::trs::testing {
namespace {

using base::Errc;
using base::kMillisecond;

class EarlyBuffer : public SessionRig {
 protected:
  static constexpr uint32_t kBytes = 64 << 10;
  EarlyBuffer() {
    process_size.tcp = true;
    adjust_server = [](ServerOptions& options) { options.max_io_bytes = kBytes; };
  }
  void fail_ports(bool on) {
    vhca::PortFaults faults;
    faults.lose_answers = on;
    faults.duplicate = on;
    ASSERT_TRUE(vhca::set_port_faults(*server->device, 1, faults).ok());
    faults.lose_answers = false;
    ASSERT_TRUE(vhca::set_port_faults(*client->device, 1, faults).ok());
  }
};

TEST_F(EarlyBuffer, RewrittenAtTheAnswerIsNotWhatTheServerGets) {
  connect();
  std::vector<std::unique_ptr<Io>> all;
  for (size_t i = 0; i < 12; ++i) {
    all.push_back(client->make_io(Direction::kWrite, i * kBytes, kBytes));
    all.back()->after = [](Io& io) {
      std::fill(io.buffer.begin(), io.buffer.end(), std::byte{0xee});
    };
  }
  for (unsigned round = 0; round < 30; ++round) {
    fail_ports(round % 3 != 0);
    for (size_t i = 0; i < all.size(); ++i) {
      fill(all[i]->buffer, round * 100 + i);
      client->submit(*all[i]);
    }
    // Before the faults would end the connection.
    world.run_for((1 + round % 5) * kMillisecond);
    fail_ports(false);
    ASSERT_TRUE(until(
        [&] { return std::all_of(all.begin(), all.end(), [](auto& io) { return io->done; }); }));
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i]->status, Errc::kOk);
      const auto stored = std::span(store.bytes).subspan(i * kBytes, kBytes);
      EXPECT_TRUE(filled(stored, round * 100 + i)) << "round " << round << ", write " << i;
    }
  }
  const uint64_t answers_lost = vhca::port_fault_counts(*server->device, 1)->answers_lost;
  EXPECT_GT(answers_lost, 20u);
  EXPECT_EQ(store.write_log.size(), 30 * all.size()) << "each was done once";
  EXPECT_EQ(client->disconnected_calls, 0u) << client->disconnected_why;
}

}  // namespace
}  // namespace braid::trs::testing
