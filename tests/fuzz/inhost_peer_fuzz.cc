// The in-host wire with a hostile peer process in the input's hands: it connects by datagrams of
// its own, shares memory, announces and retires segments, writes into the rings and tables that
// both map, and goes at any time, while the shipping end posts and polls. Whatever it does, each
// work request of the shipping end completes once and in its order, what arrives lies in its
// receive, and once the peer is gone nothing is left to wait for. (inhost_ring has the ring alone;
// what two threads do to each other at one word is explored in tests/explore.)
//   odd first byte  the shipping end takes its receives from an SRQ
#include <array>

#include "tests/fuzz/inhost_peer.h"
#include "tests/fuzz/inhost_shipping.h"
#include "tests/fuzz/reached.h"
#include "tests/fuzz/two_party.h"

namespace {

using braid::fuzz::InHostPeer;
using braid::fuzz::InHostProcess;
using braid::fuzz::InHostShipping;
using braid::fuzz::Numbers;
using braid::fuzz::require;

braid::fuzz::Reached connected("the peer is let in"), refused("it is not"),
    arrived("a message of its arrives"), succeeded("work on its memory succeeds"),
    failed("work fails");

class Game {
 public:
  Game(InHostProcess& process, const Numbers& numbers)
      : process_(process),
        numbers_(numbers),
        shipping_(process, numbers_.flag()),
        peer_(process, numbers_) {
    peer_.request();
    turn();
    peer_.listen();
    if (numbers_.odd(16)) return;
    peer_.register_memory();
    peer_.ready();
    peer_.announce();
    turn();
  }
  void play() {
    for (unsigned steps = 0; !numbers_.empty() && steps < 300; ++steps) step();
    (shipping_.connected() ? connected : refused).count();
    peer_.leave();
    for (unsigned rounds = 0; rounds < 2000 && !shipping_.settled(); ++rounds) {
      turn();
      if (rounds == 20 && !shipping_.connected()) shipping_.fail();
      shipping_.poll();
    }
    arrived.count(shipping_.arrived > 0);
    succeeded.count(shipping_.succeeded > 0);
    failed.count(shipping_.failed > 0);
    require(shipping_.settled(), "everything ends when the peer is gone");
  }

 private:
  void step() {
    switch (numbers_.below(15)) {
      case 0:
        return send();
      case 1:
      case 2:
        return shipping_.post_recv(numbers_.flag() ? numbers_.next<uint16_t>() % 8192 : 4096);
      case 3:
        return peer_.push_slot();
      case 4:
        return shipping_.poll();
      case 5:
        return peer_.give_credit();
      case 6:
        return peer_.register_memory();
      case 7:
        return peer_.scribble();
      case 8:
        return peer_.announce();
      case 9:
        return turn();
      case 10:
        return peer_.open_gate(numbers_.flag());
      case 11:
        peer_.listen();
        return peer_.ready();
      case 12:
        return numbers_.odd(4) ? peer_.rubbish() : shipping_.poll();
      case 13:
        return shipping_.arm(numbers_.flag());
      default:
        if (numbers_.odd(8)) return peer_.disconnect();
        if (numbers_.odd(8)) return peer_.leave();
        return turn();
    }
  }
  void send() {
    static constexpr std::array kOpcodes = {
        IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE,           IBV_WR_SEND,
        IBV_WR_RDMA_READ,           IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP,
        IBV_WR_SEND_WITH_IMM};
    const ibv_wr_opcode opcode = kOpcodes[numbers_.below(kOpcodes.size())];
    const uint32_t length = numbers_.flag() ? numbers_.next<uint16_t>() % 8192 : 64;
    const uint64_t offset = numbers_.odd(8) ? numbers_.next<uint64_t>() : 8u * numbers_.below(200);
    shipping_.post_send(opcode, length, InHostPeer::kBase + offset,
                        InHostPeer::key_of(numbers_.below(4)));
  }
  void turn() {
    for (int i = 0; i < 3; ++i) (void)process_.reactor->turn();
  }

  InHostProcess& process_;
  Numbers numbers_;
  InHostShipping shipping_;
  InHostPeer peer_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  static InHostProcess process;
  Game(process, Numbers({data, size_bytes})).play();
  return 0;
}
