// Two parties that speak BNBD over the shipping TRS; one of them says what the input chooses.
//   even first byte  a hostile client (bnbd_client_game.h); bit 4: of files in the server's cache
//   odd first byte   a hostile server (bnbd_server_game.h); bit 1: one that gives notice of news
#include "tests/fuzz/bnbd_client_game.h"
#include "tests/fuzz/bnbd_server_game.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  braid::fuzz::Numbers numbers({data, size_bytes});
  const auto how = numbers.next<uint8_t>();
  if ((how & 1) != 0) {
    braid::bnbd::two_party::ServerGame(numbers, (how & 2) != 0).play();
  } else {
    braid::bnbd::two_party::ClientGame(numbers, (how & 16) != 0).play();
  }
  return 0;
}
