// Keys for tests: the same name and number give the same key.
#pragma once

#include "trs/keys.h"

namespace braid::trs::testing {

inline KeyPtr test_key(std::string_view name, uint8_t number = 1) {
  const std::vector<uint8_t> secret(32, number);
  auto key = Key::create(name, secret);
  BRAID_ASSERT(key.ok());
  return *key;
}

inline std::shared_ptr<const KeyRing> test_ring(std::initializer_list<KeyPtr> keys) {
  auto ring = std::make_shared<KeyRing>();
  for (const KeyPtr& key : keys) BRAID_ASSERT(ring->add(key).ok());
  return ring;
}

}  // namespace braid::trs::testing
