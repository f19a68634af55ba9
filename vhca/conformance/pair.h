// The fixture of the conformance suite: two ends with all that a connection needs, and short words
// for what the tests do with them.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "vhca/conformance/rig.h"
#include "vhca/device.h"

namespace braid::vhca::conformance {

inline constexpr size_t kBufferBytes = 1 << 20;
inline constexpr uint64_t kRnrTimerNs = 640'000;  // the connection manager's code 12
inline constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/// How the ends of a test differ from the usual.
struct EndOptions {
  QpOptions qp;                   // its CQs are filled in
  std::optional<SrqOptions> srq;  // receives are posted there
  int cq_capacity = 256;
  bool with_channel = false;
  int mr_access = kAllAccess;
  /// Brings the QP to INIT with these flags; else the connection manager's hold.
  std::optional<int> qp_access;
  Pd* qp_pd = nullptr;  // of another end, which outlives this one; null: its own
};

/// One side of a connection.
struct End {
  std::span<std::byte> buffer;
  std::unique_ptr<Td> td;
  std::unique_ptr<Pd> pd;
  std::unique_ptr<Mr> mr;  // the whole buffer
  std::unique_ptr<CompChannel> channel;
  std::unique_ptr<Cq> send_cq;
  std::unique_ptr<Cq> recv_cq;
  std::unique_ptr<Srq> srq;
  std::unique_ptr<Qp> qp;
  std::unique_ptr<Connection> connection;
  int side = kClient;

  End() = default;
  End(End&&) = default;
  End& operator=(End&& other) noexcept {
    clear();
    std::destroy_at(this);
    return *std::construct_at(this, std::move(other));
  }
  ~End() { clear(); }
  /// What was made from something goes before it.
  void clear() {
    connection.reset();
    qp.reset();
    srq.reset();
    recv_cq.reset();
    send_cq.reset();
    channel.reset();
    mr.reset();
    pd.reset();
  }

  uint64_t address(size_t offset = 0) const {
    return reinterpret_cast<uint64_t>(buffer.data() + offset);
  }
};

class Pair : public ::testing::TestWithParam<RigFactory> {
 protected:
  Pair() : rig(GetParam().create()) {}
  /// Skips what the rig's devices cannot be asked for.
  void SetUp() override;

  // --- making
  End make_end(int side, const EndOptions& options = {});
  /// Fills client and server and connects them. `server_first` runs before the server accepts.
  void connect(const EndOptions& client_options = {}, const EndOptions& server_options = {},
               const ConnectParameters& client_parameters = {},
               const ConnectParameters& server_parameters = {});
  /// Connects two ends that exist. `connect()` forgets the ones that were added to `ends`.
  void connect_ends(End& from, End& to, const ConnectParameters& from_parameters = {},
                    const ConnectParameters& to_parameters = {});
  /// Runs a task on a side's reactor to its end.
  template <typename T>
  T run(int side, base::Task<T> task) {
    auto result = std::make_shared<std::optional<T>>();
    rig->reactor(side).spawn(keep(std::move(task), result));
    rig->reactor(side).wake();
    EXPECT_TRUE(rig->run_until([&] { return result->has_value(); })) << "a task never ended";
    BRAID_ASSERT(result->has_value());
    return std::move(**result);
  }

  // --- posting; each returns post's errno
  int post_send(End& from, const SendWr& wr) {
    const SendWr* bad = nullptr;
    return from.qp->post_send(&wr, &bad);
  }
  int post_recv(End& at, uint64_t wr_id, size_t offset, uint32_t length);
  int post_recv_without_sge(End& at, uint64_t wr_id);
  int post(End& at, const RecvWr& wr);  // at the SRQ, if it has one
  /// Of a queue that was made for `held` requests and holds them: how many it holds. Posts more
  /// where the rig's devices have room for more than they were asked for.
  static uint64_t fill_up(uint64_t held, const std::function<int(uint64_t wr_id)>& post) {
    constexpr uint64_t kMost = 1024;
    while (GetParam().queues_hold_more && held < kMost && post(held) == 0) ++held;
    return held;
  }
  /// A work request from `from`'s buffer at `offset` to the other's at `remote_offset`. Its SGE
  /// lives as long as the test.
  SendWr work(End& from, const End& to, ibv_wr_opcode opcode, uint64_t wr_id, size_t offset,
              uint32_t length, size_t remote_offset = 0);

  // --- completions
  /// The next completion of a CQ; fails the test if none comes.
  Wc next(Cq& cq);
  Wc next_sent(End& end) { return next(*end.send_cq); }
  Wc next_received(End& end) { return next(*end.recv_cq); }
  /// True if everything settles without another completion on either CQ of the end.
  bool quiet(End& end);
  /// Lets both ends move until `done`, polling the CQs of the ends as their owners would. What is
  /// polled is kept for next().
  bool run_until(const std::function<bool()>& done);
  /// The next asynchronous event of a side's device; waits for one.
  AsyncEvent next_event(int side);
  /// True if neither device has an event, when all has settled.
  bool no_events();
  /// The QP's state, after letting it notice what happened.
  ibv_qp_state state_of(End& end);
  /// Brings a QP from RESET to INIT.
  static base::Status to_init(Qp& qp, int access);
  void expect_flush(End& end, Cq& cq, const std::vector<uint64_t>& wr_ids);

  // --- memory
  static void fill(End& end, size_t offset, size_t length, int seed) {
    for (size_t i = 0; i < length; ++i) {
      end.buffer[offset + i] = static_cast<std::byte>((i * 7 + static_cast<size_t>(seed)) & 0xff);
    }
  }
  static bool same(const End& a, size_t at_a, const End& b, size_t at_b, size_t length) {
    return std::memcmp(a.buffer.data() + at_a, b.buffer.data() + at_b, length) == 0;
  }

  std::unique_ptr<Rig> rig;
  End client, server;
  std::vector<End*> ends{&client, &server};  // whose CQs are polled

 private:
  template <typename T>
  static base::Task<void> keep(base::Task<T> task, std::shared_ptr<std::optional<T>> result) {
    result->emplace(co_await std::move(task));
  }
  void poll_all();

  std::vector<std::pair<Cq*, Wc>> polled_;
  std::vector<std::unique_ptr<Sge>> sges_;
};

}  // namespace braid::vhca::conformance
