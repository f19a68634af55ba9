// What a person at a client of TRS does with a session, as the input chooses.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/reactor.h"
#include "tests/fuzz/two_party.h"
#include "trs/client.h"
#include "trs/session_rig.h"

namespace braid::fuzz {

class ClientOperator {
 public:
  /// One act. False: from now on the session may be lost by it. `home` is to be woken.
  bool acts(trs::ClientSession& session, base::Reactor& home, Numbers& numbers) {
    const std::vector<trs::PathStatus> paths = session.paths();
    const size_t path = paths[numbers.below(static_cast<uint32_t>(paths.size()))].id;
    require(!session.explain().empty(), "it says how it is");
    switch (numbers.below(8)) {
      case 0:
        session.drop_path("the input says so");
        break;
      case 1:
        (void)session.disconnect_path(path);
        break;
      case 2:
        (void)session.reconnect_path(path);
        break;
      case 3:
        session.set_policy(static_cast<trs::PathPolicy>(numbers.below(3)));
        break;
      case 4:
        if (paths.size() < kPathsMax) (void)session.add_path({paths[0].server, 0});
        break;
      case 5:
        home.spawn(remove(session, path));
        break;
      case 6:
        session.set_lost_after(numbers.next<uint8_t>() * 20 * base::kMillisecond);
        return false;
      default:
        if (administered_ < kAdministersMax) home.spawn(administer(session));
        break;
    }
    return true;
  }
  /// What it waits for has ended.
  bool idle() const { return tasks_ == 0; }

 private:
  static constexpr size_t kPathsMax = 4;
  static constexpr unsigned kAdministersMax = 8;

  base::Task<void> remove(trs::ClientSession& session, size_t path) {
    ++tasks_;
    (void)co_await session.remove_path(path);
    --tasks_;
  }
  base::Task<void> administer(trs::ClientSession& session) {
    ++tasks_;
    ++administered_;
    const trs::testing::StoreOp op;
    std::vector<std::byte> data(512);
    trs::AdminRequest request;
    request.what = "an admin request";
    request.user_header = std::as_bytes(std::span(&op, 1));
    request.data = data;
    (void)co_await session.admin(request);
    --tasks_;
  }

  unsigned tasks_ = 0, administered_ = 0;
};

}  // namespace braid::fuzz
