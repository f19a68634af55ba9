// ToldFailures: which failed flushes of an export the client of a session has been told of, for
// each device that it has open. A flush that ends well must not be polled there before the one that
// failed: it would vouch for what is gone (docs/bnbd.md, "Flush").
//
// The answer of a flush that fails tells of all failures so far. The client has seen it when it
// uses the request's chunk again. Until then it is only known that answers by the same connection
// come behind it.
//
// One reactor, the home. Telling allocates, up to a bound; nothing else does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace braid::bnbd::server {

class ToldFailures {
 public:
  /// `failed`: how many there were when the device was opened: the answer to that tells.
  explicit ToldFailures(uint64_t failed) : seen_(failed) {}

  /// The client has seen an answer that tells of so many.
  bool knows(uint64_t failed) const { return failed == seen_; }
  /// Whether a flush may end well by this connection after so many failures.
  bool may_vouch(uint64_t failed, uint64_t connection) const;
  /// One by this connection, in this chunk, ends with an error, and so tells of all of them.
  void tell(uint64_t failed, uint64_t connection, const void* chunk);
  /// The client uses the chunk again.
  void used_again(const void* chunk);
  /// Whether it matters which chunks are used again.
  bool waits() const { return !answers_.empty(); }

 private:
  struct Answer {
    uint64_t connection = 0;
    const void* chunk = nullptr;
  };
  // So many of each failure are remembered; then each connection is told once more.
  static constexpr size_t kAnswersMax = 4096;

  uint64_t seen_;      // by the client
  uint64_t told_ = 0;  // by `answers_`
  std::vector<Answer> answers_;
};

}  // namespace braid::bnbd::server
